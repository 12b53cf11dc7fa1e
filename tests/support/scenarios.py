"""Scenarios in virtual time: a topology, its placement, and kills, cut links, moves and stops at random times.

The coordinator and the tasks of all workers are real; links, disks, processes and time are scripted.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Set
from random import Random

from delivery_oracle import describe_run, random_topology
from exactly_once_oracle import COLUMN_MODES, ExactlyOnceOracle
from scripted_cluster import PHASES, ScriptedCluster
from scripted_run import Limits, run_spec

from agents.protocol import RunSpec, Slot
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.coordinator import Coordinator
from controller.coordinator.scripted_events import MoveExecutors, MoveRequest
from controller.simulation.virtual_loop import run_in_virtual_time
from inventory.errors import RunError
from inventory.times import NS
from workloads.operators import STEP_NS, own_records
from workloads.rates import rate_of

NODES = ("n1", "n2", "n3")
STEP_S = 0.001
CHECKPOINT_S = 0.05
TIMEOUT_S = 600.0
"""Virtual time after which a scenario counts as stuck."""


RARE = ("in a move", "in a copy") * 3
"""Phases that most runs do not reach are drawn more often."""


class Scenario:
    """A topology, its placement, and what happens to it at which times.

    Attributes:
        step_s: virtual time between two steps.
        reports: probability that all workers report their progress in a step.
        stopped_ns: when the stop was requested, after the start of the sources.
    """

    step_s = STEP_S
    reports = 0.1

    def __init__(self, random: Random, seed: int) -> None:
        """Draw a scenario from `random`; `seed` determines the order of all steps."""
        topology = random_topology(random)
        slots = [Slot(node, slot) for node in NODES for slot in range(2)]
        self.places = [random.choice(slots[: random.randint(1, 6)]) for _ in topology.executors]
        records = random.choice([300, 150, 40, 7, 0])
        apis = {component.id: random.choice([None, None, *COLUMN_MODES]) for component in topology.components}
        self.oracle = ExactlyOnceOracle(
            topology,
            records,
            self.places,
            tick_every=random.choice([0, 0, 3, 10]),
            columns={component: way for component, way in apis.items() if way is not None},
        )
        self.limits = Limits.random(random)
        self.rate = random.choice([{"kind": "max"}, {"kind": "constant", "tuples_per_s": 1e9 / STEP_NS}])
        names = [executor.name for executor in topology.executors]
        self.moves = [
            MoveExecutors(
                round(random.uniform(0.0, 0.2), 3),
                tuple(
                    MoveRequest(name, random.choice(NODES), random.choice([None, 0, 1]))
                    for name in random.sample(names, random.randint(1, min(3, len(names))))
                ),
            )
            for _ in range(random.choice([1, 2, 3]))
        ]
        # From this time on: at once, or when the run reaches this phase.
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
        self.stopped_ns = 0

    def __repr__(self) -> str:
        return describe_run(self, "rate", "limits", "faults", "moves", "stop_ns")

    async def execute(self) -> ScriptedCluster:
        """Run from start to finish; return the cluster."""
        random = self.random
        spec = run_spec(self.oracle.topology, self.places, self.seed, rate=self.rate)

        def place(lost: Set[str], _places: Mapping[str, Slot]) -> Mapping[str, Slot]:
            left = [node for node in NODES if node not in lost]
            if not left:
                raise RunError("no node is left")
            return {e.name: Slot(random.choice(left), random.randint(0, 1)) for e in self.oracle.topology.executors}

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
                cluster.step(random, random.choice([0, 0, 3_000_000]), self.reports)
                assert loop.time() < TIMEOUT_S, "stuck"
            running.result()
        return cluster

    def cluster(
        self, spec: RunSpec, place: Callable[[Set[str], Mapping[str, Slot]], Mapping[str, Slot]]
    ) -> ScriptedCluster:
        """Return the nodes and their coordinator."""
        settings = ControlSettings((), CHECKPOINT_S, tuple(sorted(self.moves, key=lambda plan: plan.at_s)))
        return ScriptedCluster(spec, self.oracle.operator, self.limits, settings, NODES, place)

    async def _run(self, coordinator: Coordinator) -> None:
        started = await coordinator.start()
        measuring = asyncio.ensure_future(coordinator.wait_until(started + self.stop_ns))
        stopping = asyncio.ensure_future(self.stop.wait())
        await asyncio.wait({measuring, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (measuring, stopping):
            task.cancel()
        self.stopped_ns = round(asyncio.get_running_loop().time() * NS) - started
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


def run_scenario(scenario: Scenario) -> ScriptedCluster:
    """Execute a scenario; return its cluster."""
    with scenario.limits.applied():
        return run_in_virtual_time(scenario.execute())


def run_and_check(scenario: Scenario) -> Counter[str]:
    """Execute a scenario and check its answer; return the number of events and phases, by name."""
    cluster = run_scenario(scenario)
    positions = cluster.coordinator.positions
    assert {name: at for name, at in cluster.reached.items() if at > positions[name]} == {}, positions
    assert missing_records(scenario, positions) == {}, positions
    scenario.oracle.positions = positions
    scenario.oracle.check_answer(cluster.answer())
    check_traces(scenario, cluster)
    return Counter(kind for kind, *_ in cluster.events) + scenario.phases


def missing_records(scenario: Scenario, positions: Mapping[str, int]) -> dict[str, int]:
    """Return spout executor -> number of records that were due at the stop and have not been emitted, if any."""
    schedule = rate_of(scenario.rate).schedule(scenario.seed)
    if schedule is None:
        return {}
    topology, due = scenario.oracle.topology, schedule.due_count(scenario.stopped_ns)
    sources = [e for e in topology.executors if topology.component[e.component].kind == "spout"]
    found = {}
    for at, source in enumerate(sources):
        size = topology.component[source.component].parallelism
        own = own_records(scenario.oracle.records, source.index, size)
        found[source.name] = min(own, own_records(due, at, len(sources))) - positions[source.name]
    return {name: missing for name, missing in found.items() if missing > 0}


def check_traces(scenario: Scenario, cluster: ScriptedCluster) -> None:
    """Check that traces have every emitted record once, and all rows that reached a bolt.

    Shuffled rows may be routed differently after a recovery. An executor that gets more than before counts them as new,
    while another one gets less than it has counted already.
    """
    emitted, processed = cluster.traced()
    positions = cluster.coordinator.positions
    assert {name: emitted[name] for name in positions} == positions
    oracle = scenario.oracle
    for component in oracle.topology.components:
        if component.kind == "bolt":
            rows = sum(processed[f"{component.id}[{index}]"] for index in range(component.parallelism))
            assert rows >= sum(oracle.received(component.id).values()), component.id
