"""`ds2` while a topology runs: it reaches the rate of the sources in few revisions, then stays."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from observed_rounds import nodes

from inventory.cluster import Cluster
from inventory.plugins import given as parameters
from scheduler.algorithms.ds2 import Ds2, Ds2Params
from scheduler.online.observation import (
    Observation,
    ObservedExecutor,
    ObservedNode,
    ObservedSource,
    ObservedTraffic,
    PairRate,
    problem_at,
)
from scheduler.online.revision import Revision
from scheduler.online.validation import make_online_scheduler
from scheduler.problem import CommunicationSchedule, Problem, Slot
from workloads.scaling import resized
from workloads.topology import Component, Executor, GroupingKind, Input, Topology


@dataclass
class LinearRun:
    """A topology that runs as fast as its busiest executor, worker or node allows.

    Attributes:
        topology: the topology with its current parallelism.
        cluster: its nodes.
        slots: executor -> slot.
        due_per_s: tuples/s that are due at each spout.
        cost_s: component -> CPU seconds per tuple.
        selectivity: component -> tuples sent on each of its links per tuple.
        version: changes so far.
    """

    topology: Topology
    cluster: Cluster
    slots: dict[Executor, Slot]
    due_per_s: float
    cost_s: Mapping[str, float]
    selectivity: Mapping[str, float]
    version: int = field(default=0)

    @property
    def rates(self) -> dict[str, float]:
        """Tuples/s of each component at the due rate."""
        found: dict[str, float] = {}
        for name in self.topology.order:
            component = self.topology.component[name]
            inputs = [
                found[entry.source] * self.selectivity[entry.source] * self._copies(name, entry.grouping)
                for entry in component.inputs
            ]
            found[name] = sum(inputs) if component.kind == "bolt" else self.due_per_s
        return found

    def _copies(self, name: str, grouping: str) -> int:
        return self.topology.component[name].parallelism if grouping == "all" else 1

    @property
    def points(self) -> dict[Executor, float]:
        """CPU points of each executor at the due rate."""
        rates = self.rates
        size = {component.id: component.parallelism for component in self.topology.components}
        return {e: 100 * rates[e.component] * self.cost_s[e.component] / size[e.component] for e in self.slots}

    @property
    def peak_load(self) -> float:
        """Highest load of a worker (share of a core) or of a node, at the due rate."""
        workers: dict[Slot, float] = {}
        nodes: dict[str, float] = {}
        for executor, points in self.points.items():
            slot = self.slots[executor]
            workers[slot] = workers.get(slot, 0.0) + points
            nodes[slot.node] = nodes.get(slot.node, 0.0) + points
        shares = [points / self.cluster.by_id[node].cpu_points for node, points in nodes.items()]
        return max(*(points / 100 for points in workers.values()), *shares)

    @property
    def share(self) -> float:
        """Achieved share of the due rate."""
        return 1 / max(1.0, self.peak_load)

    def observe(self, at_s: float) -> Observation:
        """Return a complete window that ends at `at_s`."""
        share, rates, points = self.share, self.rates, self.points
        executors = {}
        for executor, slot in self.slots.items():
            name = executor.component
            rate = share * rates[name] / self.topology.component[name].parallelism
            load = share * points[executor]
            executors[executor.name] = ObservedExecutor(
                node=slot.node, slot=slot.index, busy=load, load=load, processed_per_s=rate, emitted_per_s=rate
            )
        edges = []
        for source, destination, entry in self.topology.links():
            rate = share * rates[source.id] * self.selectivity[source.id] * self._copies(destination.id, entry.grouping)
            first = entry.grouping == "global"
            receivers = self.topology.executors_of(destination.id)[: 1 if first else None]
            edges += [
                PairRate(one.name, other.name, rate / source.parallelism / len(receivers))
                for one in self.topology.executors_of(source.id)
                for other in receivers
            ]
        due = self.due_per_s * sum(component.kind == "spout" for component in self.topology.components)
        return Observation(
            at_s=at_s,
            since_s=at_s - 10,
            samples=10,
            version=self.version,
            traffic=ObservedTraffic(tuple(edges)),
            executors=executors,
            nodes={node.id: ObservedNode(load=None, base=0.0, available=node.available) for node in self.cluster.nodes},
            source=ObservedSource(due, due * share),
        )

    def problem(self) -> Problem:
        """Return the round without running workers."""
        return Problem(self.cluster, (self.topology,))

    def apply(self, revision: Revision) -> None:
        """Apply a revision."""
        self.topology = resized(self.topology, revision.parallelism)
        for move in revision.moves:
            assert self.slots[move.executor] == move.source
            self.slots[move.executor] = move.target
        assert not revision.added.keys() & self.slots.keys()
        self.slots = {e: self.slots.get(e) or revision.added[e] for e in self.topology.executors}
        self.version += revision.changes

    def remove_node(self, node: str) -> None:
        """Make a node unavailable."""
        nodes = tuple(replace(each, available=each.available and each.id != node) for each in self.cluster.nodes)
        self.cluster = replace(self.cluster, nodes=nodes)


LARGE = nodes(40, capacity=None, slots=4, cpu=400.0)


def chain(*sizes: int, grouping: GroupingKind = "shuffle") -> Topology:
    """A chain c0 -> c1 -> ... of these sizes."""
    bolts = [Component(f"c{at}", "bolt", n, inputs=(Input(f"c{at - 1}", grouping),)) for at, n in enumerate(sizes)]
    return Topology("t", (Component("c0", "spout", sizes[0]), *bolts[1:]))


def started(
    topology: Topology, cluster: Cluster, due_per_s: float, costs: Sequence[float], **params: float
) -> LinearRun:
    """A run of which one tuple of component i costs `costs[i]` CPU seconds; one tuple out per tuple in."""
    plan = Ds2(Ds2Params(**params)).place(Problem(cluster, (topology,)))  # type: ignore[arg-type]
    cost_s = {component.id: cost for component, cost in zip(topology.components, costs, strict=True)}
    slots = dict(plan.placements["t"].assignments)
    return LinearRun(topology, cluster, slots, due_per_s, cost_s, dict.fromkeys(cost_s, 1.0))


def revise(run: LinearRun, at_s: float = 10.0, **params: float) -> Revision:
    observation = run.observe(at_s)
    revision = Ds2(Ds2Params(**params)).revise(problem_at(run.problem(), observation), observation)  # type: ignore[arg-type]
    assert revision is not None
    return revision


def revisions_until_steady(run: LinearRun, most: int = 12, **params: float) -> int:
    """Apply revisions until none changes anything; return their number."""
    for step in range(most):
        revision = revise(run, 10.0 * (step + 1), **params)
        if not revision.changes:
            return step
        run.apply(revision)
    return most


def sizes(run: LinearRun) -> list[int]:
    return [component.parallelism for component in run.topology.components]


def test_every_component_gets_what_the_rate_of_the_sources_needs() -> None:
    """1000 tuples/s of 1 ms, 4 ms and 0.5 ms: 1, 4 and 0.5 cores, of which executors use 0.8 at most."""
    run = started(chain(2, 1, 1), LARGE, 1000.0, [0.0005, 0.004, 0.0005])
    assert run.share < 0.25
    revision = revise(run)
    assert revision.reason == "scale"
    assert revision.parallelism == {"c1": 5}
    account = revision.details["components"]["c1"]
    assert account["true_rate"] == pytest.approx(250)
    assert account["needed"] == pytest.approx(5)
    assert account["rate"] == pytest.approx(1000)
    run.apply(revision)
    assert (run.share, revisions_until_steady(run)) == (1.0, 0)


def test_slots_are_added_before_executors() -> None:
    """Six executors of 30 points share a worker: it adds workers, no executors."""
    run = started(chain(1, 1, 1, 1, 1, 1), LARGE, 100.0, [0.003] * 6)
    assert len(set(run.slots.values())) == 1
    revision = revise(run)
    assert (revision.reason, revision.parallelism, revision.added) == ("overload", {}, {})
    assert len(revision.moves) == 4
    ready = make_online_scheduler("ds2", None)
    observation = run.observe(10.0)
    assert ready.revise(problem_at(run.problem(), observation), observation) == revision
    run.apply(revision)
    assert run.peak_load <= 0.8
    assert len(set(run.slots.values())) == 3
    assert revisions_until_steady(run) == 0


def test_executors_that_are_no_longer_needed_are_removed() -> None:
    run = started(chain(1, 8), LARGE, 100.0, [0.0001, 0.05])
    assert revisions_until_steady(run) == 1
    assert sizes(run) == [1, 7]
    run.due_per_s = 40.0
    assert revise(run).parallelism == {"c1": 3}
    assert revisions_until_steady(run) == 1
    assert run.peak_load <= 0.8


def test_selectivity_carries_the_rate_on() -> None:
    run = started(chain(1, 1, 1), LARGE, 100.0, [0.0001, 0.0001, 0.001])
    run.selectivity = {"c0": 1.0, "c1": 30.0, "c2": 0.0}
    assert revise(run).parallelism == {"c2": 4}  # 3000 tuples/s, 3 cores


@pytest.mark.parametrize("grouping", ["global", "all", "direct"])
def test_components_that_more_executors_do_not_help_keep_theirs(grouping: GroupingKind) -> None:
    run = started(chain(1, 2, grouping=grouping), LARGE, 100.0, [0.001, 0.02])
    assert revise(run).parallelism == {}


def test_copies_are_work_that_more_executors_do_not_divide() -> None:
    """Each executor gets 100 copies/s (0.2 cores), and its part of 1000 tuples/s (2 cores): 2 / (0.8 - 0.2)."""
    control, data = Component("c0", "spout"), Component("c1", "spout", 10)
    bolt = Component("c2", "bolt", 2, inputs=(Input("c0", "all"), Input("c1")))
    run = started(Topology("t", (control, data, bolt)), LARGE, 100.0, [0.001, 0.0001, 0.002])
    run.selectivity = {"c0": 1.0, "c1": 10.0, "c2": 0.0}
    assert revise(run).parallelism == {"c2": 4}
    assert revisions_until_steady(run) == 1


def test_a_spout_that_cannot_be_scaled_limits_its_bolts() -> None:
    """The spout emits 500 tuples/s at most, of 2000 that are due."""
    run = started(chain(1, 1), LARGE, 2000.0, [0.002, 0.004])
    assert revise(run).parallelism == {"c1": 3}
    assert revisions_until_steady(run) == 1
    assert run.share == pytest.approx(0.25)


def test_it_uses_at_most_max_nodes() -> None:
    run = started(chain(1, 1), LARGE, 1000.0, [0.0001, 0.01], max_nodes=2)
    assert revisions_until_steady(run, max_nodes=2) <= 3
    assert len({slot.node for slot in run.slots.values()}) == 2
    assert sizes(run) == [1, 8]  # as many as there are slots
    run.slots = {executor: Slot(f"n{at + 1}", 0) for at, executor in enumerate(run.topology.executors)}
    revision = revise(run, max_nodes=2)
    assert revision.reason in ("nodes", "scale")
    run.apply(revision)
    assert len({slot.node for slot in run.slots.values()}) <= 2


def test_too_few_slots_take_no_executor_from_a_component_that_needs_more() -> None:
    run = started(chain(1, 3), nodes(1, capacity=None, slots=1, cpu=400.0), 100.0, [0.0001, 0.05])
    revision = revise(run)
    assert revision.details["components"]["c1"]["needed"] > 6
    assert (revision.parallelism, revision.details["components"]["c1"]["wanted"]) == ({}, 3)


def test_executors_leave_a_lost_node_also_without_a_complete_window() -> None:
    run = started(chain(1, 5), LARGE, 100.0, [0.003, 0.015])
    run.remove_node("n1")
    observation = replace(run.observe(10.0), complete=False)
    revision = make_online_scheduler("ds2", None).revise(problem_at(run.problem(), observation), observation)
    assert revision is not None
    assert (revision.reason, len(revision.moves)) == ("nodes", 6)
    assert {move.target.node for move in revision.moves} == {"n2"}


def test_without_a_complete_window_and_without_a_lost_node_nothing_changes() -> None:
    run = started(chain(1, 5), LARGE, 100.0, [0.003, 0.015])
    observation = replace(run.observe(10.0), complete=False)
    revision = make_online_scheduler("ds2", None).revise(problem_at(run.problem(), observation), observation)
    assert revision == Revision(text="the observation is not complete")


def test_requested_parallelism_is_applied() -> None:
    run = started(chain(1, 2), LARGE, 100.0, [0.0001, 0.001])
    observation = run.observe(10.0)
    problem = replaced(problem_at(run.problem(), observation), topologies=(resized(run.topology, {"c1": 4}),))
    revision = Ds2(Ds2Params()).revise(problem, observation)
    assert revision is not None
    assert revision.parallelism == {"c1": 4}
    assert set(revision.added) == {Executor("c1", 2), Executor("c1", 3)}


def test_runs_with_a_schedule_use_its_nodes_only() -> None:
    run = started(chain(1, 1), LARGE, 1000.0, [0.0001, 0.01])
    schedule = CommunicationSchedule(("n1", "n2"), ((0, 1), (1, 0)), 1)
    observation = replace(run.observe(10.0), schedule=schedule)
    revision = Ds2(Ds2Params()).revise(problem_at(run.problem(), observation), observation)
    assert revision is not None
    assert {slot.node for slot in revision.added.values()} == {"n1", "n2"}


def test_a_window_in_which_nothing_was_due_changes_nothing() -> None:
    run = started(chain(1, 2), LARGE, 0.0, [0.0001, 0.001])
    revision = revise(run)
    assert (revision.changes, revision.text) == (False, "every component has what it needs")


@pytest.mark.parametrize("tiny", [5e-324, 1e-300, 1e-9])
def test_loads_and_rates_too_small_to_be_measured_decide_nothing(tiny: float) -> None:
    run = started(chain(1, 3), LARGE, 100.0, [0.001, 0.001])
    observation = run.observe(10.0)
    for changes in ({"load": tiny}, {"processed_per_s": tiny}, {"emitted_per_s": tiny}):
        executors = {name: replace(executor, **changes) for name, executor in observation.executors.items()}
        changed = replace(
            observation, executors=executors, source=ObservedSource(100.0, changes.get("emitted_per_s", 100.0))
        )
        revision = Ds2(Ds2Params()).revise(problem_at(run.problem(), changed), changed)
        assert revision is not None
        assert json.loads(json.dumps(revision.details, allow_nan=False))["components"]["c1"]["wanted"] <= 3


def test_targets_are_checked() -> None:
    assert make_online_scheduler("ds2", None, parameters(("target=0.5",))).params["target"] == 0.5
    with pytest.raises(Exception, match="target"):
        make_online_scheduler("ds2", None, parameters(("target=0",)))


@st.composite
def runs(draw: st.DrawFn, cluster: Cluster, **params: float) -> LinearRun:
    """A graph of linear operators with random costs and selectivities, whose spouts can emit what is due."""
    generator = draw(st.randoms(use_true_random=False))
    components = [Component("c0", "spout", generator.randint(1, 3))]
    for at in range(1, generator.randint(2, 5)):
        sources = sorted(generator.sample(range(at), generator.randint(1, min(at, 2))))
        kinds: list[GroupingKind] = [generator.choice(["shuffle", "fields"]) for _ in sources]
        inputs = tuple(Input(f"c{one}", kind, ("k",)) for one, kind in zip(sources, kinds, strict=True))
        components.append(Component(f"c{at}", "bolt", generator.randint(1, 4), inputs=inputs))
    costs = [_cost(component, generator) for component in components]
    run = started(Topology("t", tuple(components)), cluster, 100.0, costs, **params)
    run.selectivity = {component.id: generator.uniform(0.1, 2) for component in components}
    return run


def _cost(component: Component, generator: random.Random) -> float:
    if component.kind == "spout":
        return generator.uniform(0, 0.008) * component.parallelism
    return float(10 ** generator.uniform(-4, -1.5))


@given(runs(LARGE))
def test_it_converges_within_three_revisions(run: LinearRun) -> None:
    revisions = revisions_until_steady(run)
    assert revisions <= 3
    assert run.share >= 0.95
    assert run.peak_load <= 0.8 * 1.05 + 1e-9
    assert revisions_until_steady(run) == 0


@given(st.data(), st.integers(1, 5), st.none() | st.integers(1, 3), st.sampled_from([50.0, 100.0, 200.0]))
def test_on_few_nodes_it_keeps_its_limits_never_gets_slower_and_converges(
    data: st.DataObject, count: int, max_nodes: int | None, cpu: float
) -> None:
    params = {} if max_nodes is None else {"max_nodes": max_nodes}
    run = data.draw(runs(nodes(count, capacity=None, slots=3, cpu=cpu), **params))
    for step in range(10):
        before = run.share
        revision = revise(run, 10.0 * (step + 1), **params)
        if not revision.changes:
            break
        run.apply(revision)
        assert len({slot.node for slot in run.slots.values()}) <= (max_nodes or count)
        assert run.share >= min(before, 1 / (1.05 * 0.8)) - 1e-9
    assert not revision.changes
