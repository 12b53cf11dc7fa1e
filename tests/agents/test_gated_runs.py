"""Runs that follow a communication schedule: whatever happens, nothing leaves out of its time slot, and all arrives.

The session of `controller.coordinator`, its slot clock and the shares of all workers are the real ones; wires, disks,
processes and time are scripted.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest import mock

import hypothesis
import pytest
import virtual_time
from exact import ExactLedger
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from problems import nodes_of
from scripted import Limits, run_spec
from scripted_cluster import ScriptedCluster
from topologies import random_topology
from witness import SCHEMA, SIDE

from agents.protocol import Gates, Move, Place, TimeSlot
from agents.worker.channels.channel import Incoming, Outgoing
from agents.worker.channels.gated import Gated
from agents.worker.channels.local import LocalOutgoing
from agents.worker.channels.remote import RemoteOutgoing
from agents.worker.task_graph.epoch import EpochTasks
from agents.worker.task_graph.plan import RunPlan
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.migrations import MovePlan, MoveRequest
from inventory.errors import RunError
from scheduler.algorithms.pipeline_linear import PipelineLinear, PipelineLinearParams
from scheduler.problem import Problem
from workloads.operators import STEP_NS
from workloads.topology import Component, Input, Topology

STEP_S = 0.001
PATIENCE_S = 900.0
"""Virtual time after which a run is stuck."""


def level_of(topology: Topology, component: str) -> int:
    """Links on the longest path to a component."""
    inputs = topology.component[component].inputs
    return max((level_of(topology, entry.source) + 1 for entry in inputs), default=0)


def random_gates(random: Random, topology: Topology, nodes: Sequence[str]) -> Gates:
    """A schedule in which every pair of nodes has its turn once a round, in any order, with idle steps or without."""
    size = len(nodes)
    rows, columns, labels = (random.sample(range(size), size) for _ in range(3))
    steps: list[tuple[int | None, ...]] = [tuple(labels[(row + column) % size] for column in columns) for row in rows]
    for _ in range(random.choice([0, 0, 2])):
        steps.insert(random.randint(0, len(steps)), (None,) * size)
    stages = random.choice([1, max(1, max(level_of(topology, c.id) for c in topology.components))])
    return Gates(nodes=tuple(nodes), steps=tuple(steps), stages=stages, part_tuples=random.randint(1, 9))


class Gatekeeper:
    """Watches everything that leaves: it must be the turn of its node, and one part per pair."""

    def __init__(self, topology: Topology, marks: bool) -> None:
        """`marks`: whether there are barriers and ticks, for which rows of earlier slots may wait."""
        self._topology, self._marks = topology, marks
        self._now: tuple[EpochTasks, int] | None = None
        self._last: dict[EpochTasks, int] = {}
        self._left: Counter[tuple[EpochTasks, int, int, int]] = Counter()
        self.on_the_way = 0
        self.pairs: dict[tuple[int, int], set[tuple[str, str]]] = defaultdict(set)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Stand at all gates."""
        handle_command, release, deliver = EpochTasks.handle_command, Gated.release, Incoming.deliver
        keeper = self

        def checked(share: EpochTasks, command: Any) -> None:
            if not isinstance(command, TimeSlot):
                handle_command(share, command)
                return
            assert command.number == keeper._last.get(share, command.number - 1) + 1, "a time slot was left out"
            if share.epoch == 1 and command.number > max(keeper._last.values(), default=-1):
                assert not keeper.on_the_way, "a time slot began before the last one was over"
                bolts = [bolt for other in keeper._last for bolt in other.registry.bolts]
                idle = all(bolt.router.blocked or not bolt.inputs.rows for bolt in bolts)
                assert keeper._marks or idle, "a time slot began before all rows of the last one were processed"
            keeper._last[share] = command.number
            keeper._now = share, command.number
            handle_command(share, command)
            keeper._now = None

        def releasing(channel: Gated, most: int) -> int:
            rows = release(channel, most)
            keeper._release(channel, rows)
            return rows

        def arriving(channel: Incoming, rows: Sequence[Any], *rest: Any) -> None:
            keeper.on_the_way -= len(rows)
            deliver(channel, rows, *rest)

        with (
            mock.patch.object(EpochTasks, "handle_command", checked),
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
        share, number = self._now
        gates = share.plan.spec.gates
        component = share.plan.executors[channel.id.sender].component
        stage = level_of(self._topology, component) if gates.stages > 1 else 0
        if number < stage:
            return False
        target = gates.steps[(number - stage) % len(gates.steps)][gates.nodes.index(share._place.node)]
        return target is not None and share.place_of(channel.peer).node == gates.nodes[target]

    def _release(self, channel: Gated, rows: int) -> None:
        assert self._now is not None
        share, number = self._now
        pair = channel.id.sender, channel.id.receiver
        self._left[share, number, *pair] += rows
        assert self._left[share, number, *pair] <= share.plan.spec.gates.part_tuples, "more than a part in one slot"
        self.on_the_way += rows
        if rows:
            names = [share.plan.executors[at].name for at in pair]
            self.pairs[share.epoch, number].add((names[0], names[1]))


class GatedRun:
    """A topology, its placement and its schedule, and what happens to it."""

    def __init__(self, random: Random, seed: int, *, disturbed: bool) -> None:
        topology = random_topology(random)
        self.nodes = [f"n{at}" for at in range(random.randint(1, 4))]
        slots = [Place(node, slot) for node in self.nodes for slot in range(2)]
        self.places = [random.choice(slots) for _ in topology.executors]
        records = random.choice([300, 300, 100, 40, 0])
        self.ledger = ExactLedger(topology, records, self.places, tick_every=random.choice([0, 0, 5]))
        self.gates = random_gates(random, topology, self.nodes)
        self.limits = Limits(
            batch_rows=random.randint(1, 6),
            window_rows=random.randint(1, 12),
            window_bytes=random.choice([50, 400, 100_000]),
            turn_rows=random.randint(1, 8),
        )
        self.rate = random.choice([{"kind": "max"}, {"kind": "constant", "tuples_per_s": 1e9 / STEP_NS}])
        self.stop_ns = random.choice([0, 100_000_000, 10**12])
        names = [executor.name for executor in topology.executors]
        self.moves = [
            MovePlan(
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
        self.checkpoint_s = 0.0 if not disturbed and random.random() < 0.3 else 0.05
        self.seed = seed

    def __repr__(self) -> str:
        parts = [f"seed={self.seed}", f"records={self.ledger.records}", f"tick_every={self.ledger.tick_every}"]
        parts += [
            f"{name}={getattr(self, name)}"
            for name in ("gates", "rate", "limits", "faults", "moves", "checkpoint_s", "stop_ns")
        ]
        for component in self.ledger.topology.components:
            inputs = [(entry.source, entry.stream, entry.grouping, entry.fields) for entry in component.inputs]
            parts.append(f"{component.id}*{component.parallelism}{inputs}")
        where = zip(self.ledger.topology.executors, self.places, strict=True)
        parts.append(", ".join(f"{executor.name}@{place.node}/{place.slot}" for executor, place in where))
        return "GatedRun(" + "; ".join(parts) + ")"

    async def play(self) -> ScriptedCluster:
        random = Random(self.seed)  # noqa: S311 - it must be repeatable
        topology = self.ledger.topology

        def left_of(lost: Set[str]) -> list[str]:
            return [node for node in self.nodes if node not in lost]

        def place(lost: Set[str]) -> Mapping[str, Place]:
            return {e.name: Place(random.choice(left_of(lost)), random.randint(0, 1)) for e in topology.executors}

        def gates(lost: Set[str]) -> Gates:
            return random_gates(random, topology, left_of(lost))

        spec = replace(run_spec(topology, self.places, self.seed, rate=self.rate), gates=self.gates)
        course = ControlSettings((), self.checkpoint_s, tuple(sorted(self.moves, key=lambda plan: plan.at_s)))
        cluster = ScriptedCluster(spec, self.ledger.operator, self.limits, course, self.nodes, place, gates)
        faults = list(self.faults)
        async with cluster.coordinator as session:
            running = asyncio.create_task(_conduct(session, self.stop_ns))
            loop = asyncio.get_running_loop()
            while not running.done():
                await asyncio.sleep(STEP_S)
                for fault in [fault for fault in faults if fault[0] <= loop.time()]:
                    faults.remove(fault)
                    _break(cluster, fault[1], random)
                cluster.step(random, random.choice([0, 3_000_000]))
                assert loop.time() < PATIENCE_S, "stuck"
            running.result()
        return cluster


async def _conduct(session: Any, stop_ns: int) -> None:
    started = await session.start()
    await session.wait_until(started + stop_ns)
    await session.stop()
    await session.finish()


def _break(cluster: ScriptedCluster, what: str, random: Random) -> None:
    workers = list(cluster.run.workers)
    if what == "worker" and workers:
        cluster.kill_worker(random.choice(workers))
    elif what == "link" and len(workers) > 1:
        cluster.cut_link(*random.sample(workers, 2))
    elif what == "node" and sum(node.reachable for node in cluster.nodes.values()) > 1:
        cluster.lose_node(random.choice([name for name, node in cluster.nodes.items() if node.reachable]))


def play(run: GatedRun) -> tuple[ScriptedCluster, Gatekeeper]:
    """Play it and check its answer and its time slots."""
    marks = bool(run.moves or run.checkpoint_s or run.ledger.tick_every)
    keeper = Gatekeeper(run.ledger.topology, marks)
    with run.limits.applied(), keeper.watching():
        cluster = virtual_time.run(run.play())
    run.ledger.positions = cluster.coordinator.positions
    run.ledger.check_answer(cluster.answer())
    by_epoch: dict[int, list[int]] = defaultdict(list)
    for record in cluster.slots:
        by_epoch[record.epoch].append(record.number)
        assert record.parts <= record.tuples
        assert (record.parts == 0) == (record.tuples == 0)
        assert 0 <= record.largest_parts <= record.parts
        assert record.largest_outbox <= record.waiting
        assert record.stall_ns is None or record.stall_ns >= 0
    for numbers in by_epoch.values():
        assert numbers == list(range(len(numbers)))
    return cluster, keeper


SETTINGS = hypothesis.settings(
    max_examples=25, deadline=None, suppress_health_check=list(hypothesis.HealthCheck), print_blob=False
)
RANDOM, SEEDS = st.randoms(use_true_random=False), st.integers(0, 2**32)


@SETTINGS
@given(RANDOM, SEEDS)
def test_nothing_leaves_out_of_its_time_slot_and_all_of_it_arrives(random: Random, seed: int) -> None:
    cluster, keeper = play(GatedRun(random, seed, disturbed=False))
    assert not keeper.on_the_way
    assert {record.epoch for record in cluster.slots} == {1}


@SETTINGS
@given(RANDOM, SEEDS)
def test_a_gated_run_outlives_kills_and_begins_again_with_slot_0(random: Random, seed: int) -> None:
    play(GatedRun(random, seed, disturbed=True))


def test_checkpoints_recoveries_lost_nodes_and_moves_happen_in_such_runs() -> None:
    happened: Counter[str] = Counter()
    for seed in range(24):
        cluster, _ = play(GatedRun(Random(seed), seed, disturbed=seed % 2 == 1))  # noqa: S311 - it must be repeatable
        happened.update(kind for kind, *_ in cluster.events)
        happened["stall"] += any(record.stall_predicted_ns for record in cluster.slots)
    assert happened.keys() >= {"checkpoint", "recovery", "node_lost", "move", "stall"}


@given(RANDOM)
def test_the_stage_of_a_component_is_its_longest_path(random: Random) -> None:
    topology = random_topology(random)
    assert topology.level == {component.id: level_of(topology, component.id) for component in topology.components}
    assert topology.stages == max(topology.level.values())


def test_an_executor_on_a_node_without_a_part_in_the_schedule_is_refused() -> None:
    places = [Place("n1", 0)] * len(CHAIN.executors)
    spec = run_spec(CHAIN, places)
    gates = Gates(nodes=("n0", "n1"), steps=((0, 1), (1, 0)), stages=1, part_tuples=1)
    plan = RunPlan(replace(spec, gates=gates))
    with pytest.raises(RunError, match=r"^node n2 has no part in the run's communication schedule$"):
        plan.moved([Move("c1[0]", Place("n2", 0))], (*spec.workers, Place("n2", 0)))


# --- the worked example of pipeline-linear: N = 8, t = 4 ------------------------------------------------------------

CHAIN = Topology(
    "linear",
    (
        Component("c0", "spout", 3, outputs={"default": SCHEMA}),
        Component("c1", "bolt", 4, outputs={"default": SCHEMA, SIDE: SCHEMA}, inputs=(Input("c0", "shuffle"),)),
        Component("c2", "bolt", 3, outputs={"default": SCHEMA, SIDE: SCHEMA}, inputs=(Input("c1", "shuffle"),)),
        Component("c3", "bolt", 4, outputs={"default": SCHEMA, SIDE: SCHEMA}, inputs=(Input("c2", "shuffle"),)),
    ),
)
LETTERS = dict(zip((executor.name for executor in CHAIN.executors), "LMNABCDEFGHIJK", strict=True))
MEETINGS = {
    0: ("L>D M>A N>C", "D>F A>G B>E", "F>J G>K E>H"),
    1: ("L>B M>D N>A", "A>F B>G C>E", "F>H G>J E>I"),
}
"""Step -> by stage, who sends to whom, as printed."""


def test_gates_open_as_in_the_worked_example_of_pipeline_linear() -> None:
    nodes = [f"n{at}" for at in range(8)]
    plan = PipelineLinear(PipelineLinearParams()).place(Problem(nodes_of(**dict.fromkeys(nodes, 1)), (CHAIN,)))
    assert plan.schedule is not None
    slots = plan.placements["linear"].assignments
    places = [Place(*slots[executor]) for executor in CHAIN.executors]
    ledger = ExactLedger(CHAIN, 3000, places)
    gates = Gates(nodes=plan.schedule.nodes, steps=plan.schedule.steps, stages=plan.schedule.stages, part_tuples=4)
    assert (len(gates.steps), gates.stages) == (8, 3)
    run = GatedRun(Random(0), 0, disturbed=False)  # noqa: S311 - it must be repeatable
    run.nodes, run.places, run.ledger, run.gates, run.moves = nodes, places, ledger, gates, []
    run.checkpoint_s = 0.0
    run.rate, run.stop_ns, run.limits = {"kind": "max"}, 10**12, Limits(window_rows=40, window_bytes=10**6)
    cluster, keeper = play(run)

    seen: dict[tuple[int, int], set[str]] = defaultdict(set)
    for (_, number), pairs in keeper.pairs.items():
        for sender, receiver in pairs:
            stage = int(sender[1])
            seen[(number - stage) % 8, stage].add(f"{LETTERS[sender]}>{LETTERS[receiver]}")
    assert {step for step, _ in seen} == {0, 1, 2, 3}
    for step, stages in MEETINGS.items():
        for stage, pairs in enumerate(stages):
            assert seen[step, stage] == set(pairs.split())
    first = [record.steps for record in cluster.slots[:11]]
    assert first[:4] == ["0 - -", "1 0 -", "2 1 0", "3 2 1"]
    assert first[8:] == ["0 7 6", "1 0 7", "2 1 0"]
    assert {record.largest_parts for record in cluster.slots} == {0, 1}
