"""Runs with communication schedules, which may change, and a checker of everything that passes the gates.

The coordinator, its slot clock and the tasks of all workers are real; links, disks, processes and time are scripted.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from random import Random
from typing import Any, Literal
from unittest import mock

from delivery_oracle import describe_run, random_topology
from exactly_once_oracle import ExactlyOnceOracle
from msgspec.structs import replace
from scripted_cluster import ScriptedCluster
from scripted_run import Limits, run_spec

from agents.protocol import Gates, MoveToPlace, Schedule, Slot, TimeSlot
from agents.worker.channels.channel import Incoming, Outgoing
from agents.worker.channels.ends import LocalOutgoing, RemoteOutgoing
from agents.worker.channels.gated import Gated
from agents.worker.task_graph.epoch import EpochTasks
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.interfaces import RestartRules, SlotRecord
from controller.coordinator.scripted_events import MoveExecutors, MoveRequest
from controller.simulation.virtual_loop import run_in_virtual_time
from inventory.times import NS
from scheduler.problem import CommunicationSchedule
from workloads.operators import STEP_NS
from workloads.topology import Topology

STEP_S = 0.001
TIMEOUT_S = 900.0
"""Virtual time after which a run counts as stuck."""


def level_of(topology: Topology, component: str) -> int:
    """Return the number of links on the longest path to a component."""
    inputs = topology.component[component].inputs
    return max((level_of(topology, entry.source) + 1 for entry in inputs), default=0)


def random_gates(random: Random, topology: Topology, nodes: Sequence[str]) -> Gates:
    """Return a random schedule with one step per round for every pair of nodes, with or without idle steps."""
    size = len(nodes)
    rows, columns, labels = (random.sample(range(size), size) for _ in range(3))
    steps: list[tuple[int | None, ...]] = [tuple(labels[(row + column) % size] for column in columns) for row in rows]
    for _ in range(random.choice([0, 0, 2])):
        steps.insert(random.randint(0, len(steps)), (None,) * size)
    stages = random.choice([1, max(1, max(level_of(topology, c.id) for c in topology.components))])
    parts, overlap = random.randint(1, 9), random.choice(["none", "transfer"])
    return Gates(nodes=tuple(nodes), steps=tuple(steps), stages=stages, part_tuples=parts, overlap=overlap)


class GateChecker:
    """Checks what leaves: its step must be active, and a pair of executors sends at most one part per slot."""

    def __init__(self, topology: Topology, marks: bool) -> None:
        """`marks`: whether there are barriers and ticks, for which rows of earlier slots may wait."""
        self._topology, self._marks = topology, marks
        self._now: tuple[EpochTasks, int] | None = None
        self._last: dict[EpochTasks, int] = {}
        self._first: dict[EpochTasks, int] = {}
        """Time slot that counts as slot 0 of the schedule."""
        self._left: Counter[tuple[EpochTasks, int, int, int]] = Counter()
        self.in_flight = self.changes = self.overlapped = 0
        self.pairs: dict[tuple[int, int], set[tuple[str, str]]] = defaultdict(set)

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Check all gates within the block."""
        handle_command, release, deliver = EpochTasks.handle_command, Gated.release, Incoming.deliver
        follow = EpochTasks.follow
        checker = self

        def checked(tasks: EpochTasks, command: Any) -> None:
            if not isinstance(command, TimeSlot):
                handle_command(tasks, command)
                return
            assert command.number == checker._last.get(tasks, command.number - 1) + 1, "a time slot was left out"
            overlaps = tasks.plan.spec.gates.overlap == "transfer"
            if tasks.epoch == 1 and command.number > max(checker._last.values(), default=-1):
                assert not checker.in_flight, "a time slot began before the last one was over"
                bolts = [bolt for other in checker._last for bolt in other.registry.bolts]
                idle = all(bolt.router.blocked or not bolt.inputs.rows for bolt in bolts)
                checker.overlapped += overlaps and not idle
                may_wait = checker._marks or overlaps
                assert may_wait or idle, "a time slot began before all rows of the last one were processed"
            checker._last[tasks] = command.number
            checker._now = tasks, command.number
            handle_command(tasks, command)
            checker._now = None

        def following(tasks: EpochTasks, gates: Gates, first: int) -> None:
            before = tasks.plan.spec.gates
            if gates != before:
                assert not (first - checker._first.get(tasks, 0)) % len(before.steps), "a change within a round"
                assert checker._last.get(tasks, first - 1) == first - 1, "a change that is not at once"
                checker.changes += 1
            waiting = [list(channel.pending) for channel in tasks.registry.senders]
            follow(tasks, gates, first)
            assert [list(channel.pending) for channel in tasks.registry.senders] == waiting
            checker._first[tasks] = first

        def releasing(channel: Gated, most: int) -> int:
            rows = release(channel, most)
            checker._release(channel, rows)
            return rows

        def arriving(channel: Incoming, rows: Sequence[Any], *rest: Any) -> None:
            checker.in_flight -= len(rows)
            deliver(channel, rows, *rest)

        with (
            mock.patch.object(EpochTasks, "handle_command", checked),
            mock.patch.object(EpochTasks, "follow", following),
            mock.patch.object(Gated, "release", releasing),
            mock.patch.object(Incoming, "deliver", arriving),
            mock.patch.object(LocalOutgoing, "_deliver", self._checked(LocalOutgoing._deliver)),
            mock.patch.object(RemoteOutgoing, "_deliver", self._checked(RemoteOutgoing._deliver)),
        ):
            yield

    def _checked(self, deliver: Callable[..., Any]) -> Callable[..., Any]:
        def delivering(channel: Outgoing, rows: Any) -> Any:
            assert self._now is not None, "rows left outside the beginning of a time slot"
            assert self._is_open(channel), "rows left through a shut gate"
            return deliver(channel, rows)

        return delivering

    def _is_open(self, channel: Outgoing) -> bool:
        assert self._now is not None
        tasks, number = self._now
        number -= self._first.get(tasks, 0)
        gates = tasks.plan.spec.gates
        component = tasks.plan.executors[channel.id.sender].component
        stage = level_of(self._topology, component) if gates.stages > 1 else 0
        if number < stage:
            return False
        target = gates.steps[(number - stage) % len(gates.steps)][gates.nodes.index(tasks._place.node)]
        return target is not None and tasks.place_of(channel.peer).node == gates.nodes[target]

    def _release(self, channel: Gated, rows: int) -> None:
        assert self._now is not None
        tasks, number = self._now
        pair = channel.id.sender, channel.id.receiver
        self._left[tasks, number, *pair] += rows
        assert self._left[tasks, number, *pair] <= tasks.plan.spec.gates.part_tuples, "more than a part in one slot"
        self.in_flight += rows
        if rows:
            names = [tasks.plan.executors[at].name for at in pair]
            self.pairs[tasks.epoch, number].add((names[0], names[1]))


class GatedRun:
    """A topology, its placement and its schedule, with faults, moves and changes of the schedule."""

    def __init__(self, random: Random, seed: int, *, disturbed: bool, changing: bool = False) -> None:
        topology = random_topology(random)
        self.nodes = [f"n{at}" for at in range(random.randint(1, 4))]
        slots = [Slot(node, slot) for node in self.nodes for slot in range(2)]
        self.places = [random.choice(slots) for _ in topology.executors]
        records = random.choice([300, 300, 100, 40, 0])
        self.oracle = ExactlyOnceOracle(topology, records, self.places, tick_every=random.choice([0, 0, 5]))
        self.gates = random_gates(random, topology, self.nodes)
        self.limits = Limits.random(random)
        self.rate = random.choice([{"kind": "max"}, {"kind": "constant", "tuples_per_s": 1e9 / STEP_NS}])
        self.stop_ns = random.choice([0, 100_000_000, 10**12])
        names = [executor.name for executor in topology.executors]
        self.moves = [
            MoveExecutors(
                round(random.uniform(0.0, 0.05), 3), (MoveRequest(random.choice(names), random.choice(self.nodes)),)
            )
            for _ in range(random.choice([0, 2, 3]))
        ]
        self.faults = []
        if disturbed:
            self.faults = [
                (random.uniform(0.0, 0.3), random.choice(["worker", "link", "node"]))
                for _ in range(random.choice([1, 2]))
            ]
        self.changes: list[float] = []
        """Times at which the schedule changes, and with it the nodes in use."""
        if changing:
            self.changes = sorted(random.uniform(0.0, 0.2) for _ in range(random.choice([1, 2, 4])))
        self.checkpoint_s = 0.0 if not disturbed and random.random() < 0.3 else 0.05
        self.seed = seed
        self.outcomes: Counter[str] = Counter()
        self.kill_when: Literal["", "requested", "sent"] = ""
        """Kill a worker when a change of the schedule is requested, or sent and not yet received by all."""
        self.restart: RestartRules | None = None

    def __repr__(self) -> str:
        return describe_run(self, "gates", "rate", "limits", "faults", "moves", "changes", "checkpoint_s", "stop_ns")

    async def execute(self) -> ScriptedCluster:
        random = Random(self.seed)  # noqa: S311 - it must be repeatable
        topology = self.oracle.topology

        def left_of(lost: Set[str]) -> list[str]:
            return [node for node in self.nodes if node not in lost]

        def place(lost: Set[str], _places: Mapping[str, Slot]) -> Mapping[str, Slot]:
            return {e.name: Slot(random.choice(left_of(lost)), random.randint(0, 1)) for e in topology.executors}

        def gates(lost: Set[str]) -> Gates:
            return random_gates(random, topology, left_of(lost))

        spec = replace(run_spec(topology, self.places, self.seed, rate=self.rate), gates=self.gates)
        moves = tuple(sorted(self.moves, key=lambda plan: plan.at_s))
        settings = ControlSettings((), self.checkpoint_s, moves, restart=self.restart)
        cluster = ScriptedCluster(spec, self.oracle.operator, self.limits, settings, self.nodes, place, gates)
        faults = list(self.faults)
        async with cluster.coordinator as coordinator:
            running = asyncio.create_task(_conduct(coordinator, self.stop_ns))
            loop = asyncio.get_running_loop()
            changing = asyncio.create_task(self._change(cluster, Random(self.seed + 1)))  # noqa: S311 - repeatable
            while not running.done():
                await asyncio.sleep(STEP_S)
                for fault in [fault for fault in faults if fault[0] <= loop.time()]:
                    faults.remove(fault)
                    _break(cluster, fault[1], random)
                if self.kill_when and _is_changing(cluster, self.kill_when):
                    self.outcomes[f"killed when {self.kill_when}"] += 1
                    self.kill_when = ""
                    _break(cluster, "worker", random)
                cluster.step(random, random.choice([0, 3_000_000]))
                assert loop.time() < TIMEOUT_S, "stuck"
            running.result()
            changing.cancel()
        return cluster

    async def _change(self, cluster: ScriptedCluster, random: Random) -> None:
        """Change schedules: nodes join, and executors leave others."""
        start_ns = await cluster.coordinator.start()
        loop = asyncio.get_running_loop()
        for at_s in self.changes:
            await asyncio.sleep(start_ns / NS + at_s - loop.time())
            workers = cluster.coordinator._epoch_workers
            present = workers.spec.gates.nodes
            chosen = random.choice([present, present, self.nodes])
            nodes = random.sample(sorted(chosen), random.randint(1, len(chosen)))
            if random.random() < 0.5:
                nodes = sorted({*nodes, *present})
            moves = tuple(
                MoveToPlace(name, Slot(random.choice(nodes), random.randint(0, 1)))
                for name, place in workers.places.items()
                if place.node not in nodes or random.random() < 0.2
            )
            waves = [moves] if any(move.to != workers.places[move.executor] for move in moves) else []
            waves = [tuple(move for move in wave if move.to != workers.places[move.executor]) for wave in waves]
            gates = random_gates(random, self.oracle.topology, nodes)
            schedule = CommunicationSchedule(gates.nodes, gates.steps, gates.stages)
            number = None if self.restart is None else 1
            carried = await cluster.coordinator._checkpoint_loop.carry(number, waves, schedule)
            self.outcomes[carried.outcome] += 1
            if carried.outcome == "done":
                now = cluster.coordinator._epoch_workers.spec.gates
                assert now is not None
                assert (now.nodes, now.steps) == (gates.nodes, gates.steps)


async def _conduct(coordinator: Any, stop_ns: int) -> None:
    started = await coordinator.start()
    await coordinator.wait_until(started + stop_ns)
    await coordinator.stop()
    await coordinator.finish()


def _is_changing(cluster: ScriptedCluster, when: str) -> bool:
    if when == "requested":
        return cluster.coordinator._epoch_workers.next_gates is not None
    return any(isinstance(command, Schedule) for node in cluster.nodes.values() for command in node.commands)


def _break(cluster: ScriptedCluster, what: str, random: Random) -> None:
    workers = list(cluster.run.workers)
    if what == "worker" and workers:
        cluster.kill_worker(random.choice(workers))
    elif what == "link" and len(workers) > 1:
        cluster.cut_link(*random.sample(workers, 2))
    elif what == "node" and sum(node.reachable for node in cluster.nodes.values()) > 1:
        cluster.lose_node(random.choice([name for name, node in cluster.nodes.items() if node.reachable]))


def check_measures(record: SlotRecord) -> None:
    """Check the stages, buffers and nodes of a record."""
    assert sum(int(pair.rpartition("=")[2]) for pair in record.node_parts.split()) == record.parts
    assert record.queued_rows >= record.waiting
    assert (record.queued_bytes > 0) == (record.queued_rows > 0)
    assert (record.arrived_ns is not None) == (record.parts > 0)
    assert record.packed_ns is None or record.processed_ns is not None


def run_and_check(run: GatedRun) -> tuple[ScriptedCluster, GateChecker]:
    """Execute a run; check its answer and its time slots."""
    marks = bool(run.moves or run.changes or run.checkpoint_s or run.oracle.tick_every)
    checker = GateChecker(run.oracle.topology, marks)
    with run.limits.applied(), checker.checking():
        cluster = run_in_virtual_time(run.execute())
    run.oracle.positions = cluster.coordinator.positions
    run.oracle.check_answer(cluster.answer())
    by_epoch: dict[int, list[int]] = defaultdict(list)
    for record in cluster.slots:
        by_epoch[record.epoch].append(record.number)
        assert record.parts <= record.tuples
        assert (record.parts == 0) == (record.tuples == 0)
        assert 0 <= record.largest_parts <= record.parts
        assert record.largest_outbox <= record.waiting
        assert record.stall_ns is None or record.stall_ns >= 0
        check_measures(record)
    for numbers in by_epoch.values():
        assert numbers == list(range(len(numbers)))
    return cluster, checker
