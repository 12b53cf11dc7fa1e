"""Scenarios: a topology, its placement, and what is killed, cut, moved and stopped when, in virtual time.

The coordinator and the tasks of all workers are the real ones; wires, disks, processes and time are scripted.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Set
from random import Random

import virtual_time
from as_columns import WAYS
from exact import ExactLedger
from scripted import Limits, run_spec
from scripted_cluster import PHASES, ScriptedCluster
from topologies import described, random_topology

from agents.protocol import RunSpec, Slot
from controller.coordinator.barrier import MovePlan, MoveRequest
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.coordinator import Coordinator
from inventory.errors import RunError
from workloads.operators import STEP_NS

NODES = ("n1", "n2", "n3")
STEP_S = 0.001
CHECKPOINT_S = 0.05
PATIENCE_S = 600.0
"""Virtual time after which a scenario is stuck."""


RARE = ("in a move", "in a copy") * 3
"""Phases that most runs do not come to are drawn more often."""


class Scenario:
    """A topology, its placement, and what is done to it when.

    Attributes:
        step_s: virtual time between two moments at which something happens.
    """

    step_s = STEP_S

    def __init__(self, random: Random, seed: int) -> None:
        """Draw it from `random`; `seed` decides the order of all that happens."""
        topology = random_topology(random)
        slots = [Slot(node, slot) for node in NODES for slot in range(2)]
        self.places = [random.choice(slots[: random.randint(1, 6)]) for _ in topology.executors]
        records = random.choice([300, 150, 40, 7, 0])
        apis = {component.id: random.choice([None, None, *WAYS]) for component in topology.components}
        self.ledger = ExactLedger(
            topology,
            records,
            self.places,
            tick_every=random.choice([0, 0, 3, 10]),
            columns={component: way for component, way in apis.items() if way is not None},
        )
        self.limits = Limits.drawn(random)
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
                random.choice([None, *PHASES, *RARE]),
            )
            for _ in range(random.choice([1, 2, 4]))
        ]
        self.stop_ns = random.choice([random.randint(0, 500_000_000), 10**12])
        stop_in = random.choice([None, "in a recovery", *PHASES, *RARE])
        if stop_in is not None:
            self.faults.append((0.0, "stop", stop_in))
        self.seed = seed
        self.random = Random(seed)  # noqa: S311 - it must be repeatable
        self.phases: Counter[str] = Counter()
        self.stop = asyncio.Event()

    def __repr__(self) -> str:
        return described(self, "rate", "limits", "faults", "moves", "stop_ns")

    async def play(self) -> ScriptedCluster:
        """From start to finish."""
        random = self.random
        spec = run_spec(self.ledger.topology, self.places, self.seed, rate=self.rate)

        def place(lost: Set[str], _places: Mapping[str, Slot]) -> Mapping[str, Slot]:
            left = [node for node in NODES if node not in lost]
            if not left:
                raise RunError("no node is left")
            return {e.name: Slot(random.choice(left), random.randint(0, 1)) for e in self.ledger.topology.executors}

        cluster = self.cluster(spec, place)
        faults = list(self.faults)
        async with cluster.coordinator as coordinator:
            running = asyncio.create_task(self._run(coordinator))
            loop = asyncio.get_running_loop()
            while not running.done():
                await asyncio.sleep(self.step_s)
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

    def cluster(
        self, spec: RunSpec, place: Callable[[Set[str], Mapping[str, Slot]], Mapping[str, Slot]]
    ) -> ScriptedCluster:
        """The nodes, and how they are controlled."""
        course = ControlSettings((), CHECKPOINT_S, tuple(sorted(self.moves, key=lambda plan: plan.at_s)))
        return ScriptedCluster(spec, self.ledger.operator, self.limits, course, NODES, place)

    async def _run(self, coordinator: Coordinator) -> None:
        started = await coordinator.start()
        measuring = asyncio.ensure_future(coordinator.wait_until(started + self.stop_ns))
        stopping = asyncio.ensure_future(self.stop.wait())
        await asyncio.wait({measuring, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (measuring, stopping):
            task.cancel()
        await coordinator.stop()
        await coordinator.finish()

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
    check_traces(scenario, cluster)
    return Counter(kind for kind, *_ in cluster.events) + scenario.phases


def check_traces(scenario: Scenario, cluster: ScriptedCluster) -> None:
    """Traces have every record once where it is emitted, and no row that reached a bolt is missing.

    Shuffled rows may be dealt otherwise after a recovery. Those that an executor gets more than before count as new
    ones, while others get less than they have counted already.
    """
    emitted, processed = cluster.traced()
    positions = cluster.coordinator.positions
    assert {name: emitted[name] for name in positions} == positions
    ledger = scenario.ledger
    for component in ledger.topology.components:
        if component.kind == "bolt":
            rows = sum(processed[f"{component.id}[{index}]"] for index in range(component.parallelism))
            assert rows >= sum(ledger.received(component.id).values()), component.id
