"""Kills, lost nodes, broken links, moves and stops at any moment: the answer is the right one, every row once.

The session of `controller.coordinator` and the shares of all workers are the real ones; wires, disks, processes and
time are scripted. `--scenarios N` asks for more of them, and `--seed S`, which a failure names, repeats them exactly.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Set
from random import Random, randrange

import hypothesis
import pytest
import virtual_time
from exact import ExactLedger
from hypothesis import strategies as st
from scripted import Limits, run_spec
from scripted_cluster import PHASES, ScriptedCluster
from topologies import random_topology

from agents.protocol import Place
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.coordinator import Coordinator
from controller.coordinator.migrations import MovePlan, MoveRequest
from inventory.errors import RunError
from workloads.operators import STEP_NS

NODES = ("n1", "n2", "n3")
STEP_S = 0.001
CHECKPOINT_S = 0.05
PATIENCE_S = 600.0
"""Virtual time after which a scenario is stuck."""


class Scenario:
    """A topology, its placement, and what is done to it when."""

    def __init__(self, random: Random, seed: int) -> None:
        """Draw it from `random`; `seed` decides the order of all that happens."""
        topology = random_topology(random)
        slots = [Place(node, slot) for node in NODES for slot in range(2)]
        self.places = [random.choice(slots[: random.randint(1, 6)]) for _ in topology.executors]
        records = random.choice([300, 150, 40, 7, 0])
        self.ledger = ExactLedger(topology, records, self.places, tick_every=random.choice([0, 0, 3, 10]))
        self.limits = Limits(
            batch_rows=random.randint(1, 6),
            window_rows=random.randint(1, 12),
            window_bytes=random.choice([50, 400, 100_000]),
            turn_rows=random.randint(1, 8),
        )
        self.rate = random.choice([{"kind": "max"}, {"kind": "constant", "tuples_per_s": 1e9 / STEP_NS}])
        names = [executor.name for executor in topology.executors]
        self.moves = [
            MovePlan(
                round(random.uniform(0.0, 0.2), 3),
                tuple(
                    MoveRequest(name, random.choice(NODES), random.choice([None, 0, 1]))
                    for name in random.sample(names, random.randint(1, min(3, len(names))))
                ),
            )
            for _ in range(random.choice([1, 2, 3]))
        ]
        # At this time or later: at once, or when the run comes to this phase.
        self.faults = [
            (
                round(random.uniform(0.0, 0.2), 3),
                random.choice(["worker", "node", "agent", "link"]),
                random.choice([None, *PHASES]),
            )
            for _ in range(random.choice([1, 2, 4]))
        ]
        self.stop_ns = random.choice([random.randint(0, 500_000_000), 10**12])
        stop_in = random.choice([None, "in a recovery", *PHASES])
        if stop_in is not None:
            self.faults.append((0.0, "stop", stop_in))
        self.seed = seed
        self.random = Random(seed)  # noqa: S311 - it must be repeatable
        self.phases: Counter[str] = Counter()
        self.stop = asyncio.Event()

    def __repr__(self) -> str:
        parts = [f"seed={self.seed}", f"records={self.ledger.records}", f"tick_every={self.ledger.tick_every}"]
        parts += [f"{name}={getattr(self, name)}" for name in ("rate", "limits", "faults", "moves", "stop_ns")]
        for component in self.ledger.topology.components:
            inputs = [(entry.source, entry.stream, entry.grouping, entry.fields) for entry in component.inputs]
            parts.append(f"{component.id}*{component.parallelism}{inputs}")
        where = zip(self.ledger.topology.executors, self.places, strict=True)
        parts.append(", ".join(f"{executor.name}@{place.node}/{place.slot}" for executor, place in where))
        return "Scenario(" + "; ".join(parts) + ")"

    async def play(self) -> ScriptedCluster:
        """From start to finish."""
        random = self.random
        spec = run_spec(self.ledger.topology, self.places, self.seed, rate=self.rate)
        course = ControlSettings((), CHECKPOINT_S, tuple(sorted(self.moves, key=lambda plan: plan.at_s)))

        def place(lost: Set[str]) -> Mapping[str, Place]:
            left = [node for node in NODES if node not in lost]
            if not left:
                raise RunError("no node is left")
            return {e.name: Place(random.choice(left), random.randint(0, 1)) for e in self.ledger.topology.executors}

        cluster = ScriptedCluster(spec, self.ledger.operator, self.limits, course, NODES, place)
        faults = list(self.faults)
        async with cluster.coordinator as session:
            running = asyncio.create_task(self._run(session))
            loop = asyncio.get_running_loop()
            while not running.done():
                await asyncio.sleep(STEP_S)
                for fault in [fault for fault in faults if fault[0] <= loop.time()]:
                    if fault[2] in (None, cluster.phase):
                        faults.remove(fault)
                        self._break(cluster, fault[1])
                if random.random() < 0.01:
                    self._bring_back(cluster)
                cluster.step(random, random.choice([0, 0, 3_000_000]))
                assert loop.time() < PATIENCE_S, "stuck"
            running.result()
        return cluster

    async def _run(self, session: Coordinator) -> None:
        started = await session.start()
        measuring = asyncio.ensure_future(session.wait_until(started + self.stop_ns))
        stopping = asyncio.ensure_future(self.stop.wait())
        await asyncio.wait({measuring, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (measuring, stopping):
            task.cancel()
        await session.stop()
        await session.finish()

    def _break(self, cluster: ScriptedCluster, what: str) -> None:
        self.phases[cluster.phase] += 1
        if what == "stop":
            self.phases[f"stop {cluster.phase}"] += 1
            self.stop.set()
            return
        random, workers = self.random, list(cluster.run.workers)
        if what == "worker" and workers:
            cluster.kill_worker(random.choice(workers))
        elif what == "link" and len(workers) > 1:
            cluster.cut_link(*random.sample(workers, 2))
        elif what == "agent":
            cluster.kill_agent(random.choice(NODES))
        elif what == "node" and sum(node.reachable for node in cluster.nodes.values()) > 1:
            cluster.lose_node(random.choice([name for name, node in cluster.nodes.items() if node.reachable]))

    def _bring_back(self, cluster: ScriptedCluster) -> None:
        for name, node in cluster.nodes.items():
            if not node.reachable:
                cluster.return_node(name)


def play(scenario: Scenario) -> Counter[str]:
    """Play a scenario and check its answer; return what happened in it."""
    with scenario.limits.applied():
        cluster = virtual_time.run(scenario.play())
    positions = cluster.coordinator.positions
    assert {name: at for name, at in cluster.reached.items() if at > positions[name]} == {}, positions
    scenario.ledger.positions = positions
    scenario.ledger.check_answer(cluster.answer())
    return Counter(kind for kind, *_ in cluster.events) + scenario.phases


SCENARIOS = st.builds(Scenario, st.randoms(use_true_random=False), st.integers(0, 2**32))


def test_the_answer_is_right_whatever_is_killed_or_moved(request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--seed")
    seed = randrange(10**6) if seed is None else seed  # noqa: S311 - any will do
    happened: Counter[str] = Counter()

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=request.config.getoption("--scenarios"),
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        print_blob=False,
    )
    @hypothesis.given(SCENARIOS)
    def scenarios(scenario: Scenario) -> None:
        happened.update(play(scenario))

    try:
        scenarios()
    except BaseException as fault:
        fault.add_note(f"again: pytest {__file__} --scenarios {request.config.getoption('--scenarios')} --seed {seed}")
        raise
    expected = {"checkpoint", "recovery", "move", "node_lost", "stop in a recovery", *PHASES}
    assert happened.keys() >= expected, happened
