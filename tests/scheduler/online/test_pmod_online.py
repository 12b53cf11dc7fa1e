"""`pmod` while a topology runs: only necessary moves, and a schedule for the new numbers of executors."""

from collections.abc import Sequence
from dataclasses import replace as replaced

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from observed_rounds import chain, nodes, observed, round_at

from inventory.cluster import Cluster
from inventory.plugins import given as parameters
from scheduler.algorithms.pmod import Pmod, PmodParams
from scheduler.online.observation import Change, Observation
from scheduler.online.revision import Revision
from scheduler.online.validation import make_online_scheduler
from scheduler.problem import Problem
from workloads.scaling import resized
from workloads.topology import Topology

NAMES = {"s": "src", "b": "mid", "k": "snk"}


def available(cluster: Cluster, *names: str) -> Cluster:
    return replace(cluster, nodes=tuple(replace(node, available=node.id in names) for node in cluster.nodes))


def started(topology: Topology, start: Cluster, now: Cluster | None = None, gated: bool = True) -> Observation:
    """A run that `pmod` placed on `start`, observed on `now`."""
    plan = Pmod(PmodParams()).place(Problem(start, (topology,)))
    places = {e.name: f"{slot.node}/{slot.index}" for e, slot in plan.placements["t"].assignments.items()}
    return replace(observed(60, places, {}, cluster=now or start), schedule=plan.schedule if gated else None)


def changes(revision: Revision | None) -> bool:
    return revision is not None and revision.changes


def revise(topology: Topology, observation: Observation, cluster: Cluster, **params: float) -> Revision:
    """Return what `pmod` changes of a run if the parallelism of `topology` is wanted."""
    problem = replaced(round_at(observation, topology, cluster), topologies=(topology,))
    return Pmod(PmodParams(**params)).revise(problem, observation)  # type: ignore[arg-type]


def steps(rows: Sequence[Sequence[int | None]]) -> str:
    return " ".join("".join("-" if cell is None else str(cell) for cell in row) for row in rows)


def followed_steps(revision: Revision) -> str:
    assert revision.schedule is not None
    return steps(revision.schedule.steps)


def added(revision: Revision) -> dict[str, str]:
    return {f"{NAMES[e.component]}{e.index}": slot.node for e, slot in revision.added.items()}


TWO, THREE = chain(3, (2, 2, 2)), chain(3, (3, 3, 3))


def test_two_executors_become_three() -> None:
    cluster = nodes(3, capacity=None)
    observation = started(TWO, cluster)
    assert {name: slot.node for name, slot in observation.places.items()} == {
        "s[0]": "n1",
        "b[1]": "n1",
        "s[1]": "n2",
        "k[0]": "n2",
        "b[0]": "n3",
        "k[1]": "n3",
    }
    assert observation.schedule is not None
    assert steps(observation.schedule.steps) == "012 201 120"
    revision = revise(THREE, observation, cluster)
    assert (revision.reason, revision.moves) == ("scale", ())
    assert revision.parallelism == {"s": 3, "b": 3, "k": 3}
    assert added(revision) == {"src2": "n3", "mid2": "n2", "snk2": "n1"}
    assert followed_steps(revision) == "021 102 210"
    assert revision.details["total_cost"] == 4
    assert {key: revision.details[key] for key in "NtQs"} == {"N": 3, "t": 2, "Q": 3, "s": 3}


def test_two_become_three_while_a_node_joins() -> None:
    four = nodes(4, capacity=None)
    observation = started(TWO, nodes(3, capacity=None), four)
    revision = revise(THREE, observation, four)
    assert revision.moves == ()
    assert added(revision) == {"src2": "n4", "mid2": "n4", "snk2": "n1"}
    assert steps(revision.details["sm"]) == "012 231 103 320"
    assert followed_steps(revision) == "0213 1302 2031 3120"


def test_a_node_that_joins_alone_gets_a_schedule_and_no_executor() -> None:
    four = nodes(4, capacity=None)
    observation = started(TWO, nodes(3, capacity=None), four)
    revision = revise(TWO, observation, four)
    assert (revision.reason, revision.moves, revision.added, revision.parallelism) == ("schedule", (), {}, {})
    assert revision.schedule is not None
    assert revision.schedule.nodes == ("n1", "n2", "n3", "n4")
    assert not revise(TWO, replace(observation, schedule=revision.schedule), four).changes
    assert not revise(TWO, replace(observation, schedule=None), four).changes


def test_the_example_of_the_paper_from_four_tasks_to_five_on_six_nodes() -> None:
    six = nodes(6, capacity=None)
    revision = revise(chain(6, (5, 5, 5)), started(chain(6, (4, 4, 4)), six), six, v=3.5)
    assert followed_steps(revision) == steps(revision.details["sm"]) == "024135 135024 240351 351240 402513 513402"
    assert revision.details["costs"] == [2, 3, 4, 5, 4, 5]
    assert [row["c"] for row in revision.details["class_table"]] == [4, 4, 3, 3, 3, 3]
    assert [row["cells"] for row in revision.details["sim"]][3] == [[3], [5], [1], [3], [5], [1]]
    assert revision.details["timing"]["makespan"] == 27.5
    assert revision.moves == ()


def test_one_of_six_nodes_leaves() -> None:
    six = nodes(6, capacity=None)
    five = available(six, "n1", "n2", "n3", "n4", "n5")
    topology = chain(6, (5, 5, 5))
    observation = started(topology, six, five)
    ready = make_online_scheduler("pmod", None)
    revision = ready.revise(round_at(observation, topology, five), observation)
    assert revision is not None
    assert revision.reason == "nodes"
    assert {move.source.node for move in revision.moves} == {"n6"}
    assert steps(revision.details["sm"]) == "01234- 1234-0 234-01 34-012 4-0123 -01234"
    assert followed_steps(revision) == "01234 40123 34012 23401 12340"


def test_fewer_executors_are_wanted() -> None:
    cluster = nodes(3, capacity=None)
    revision = revise(TWO, started(THREE, cluster), cluster)
    assert (revision.parallelism, revision.moves, revision.added) == ({"s": 2, "b": 2, "k": 2}, (), {})
    assert {key: revision.details[key] for key in "NtQs"} == {"N": 3, "t": 3, "Q": 3, "s": 2}


def test_the_schedule_follows_tasks_that_were_added_by_others() -> None:
    cluster = nodes(3, capacity=None)
    observation, ready = started(TWO, cluster), make_online_scheduler("pmod", None)
    assert not changes(ready.revise(round_at(observation, TWO, cluster), observation))
    scaled = replace(started(THREE, cluster), schedule=observation.schedule)
    revision = ready.revise(round_at(scaled, THREE, cluster), scaled)
    assert revision is not None
    assert (revision.reason, revision.moves, followed_steps(revision)) == ("schedule", (), "021 102 210")
    assert {key: revision.details[key] for key in "NtQs"} == {"N": 3, "t": 2, "Q": 3, "s": 3}
    applied = replace(scaled, schedule=revision.schedule)
    assert not changes(ready.revise(round_at(applied, THREE, cluster), applied))


def test_tasks_that_were_added_and_need_no_other_steps_change_nothing() -> None:
    cluster = nodes(2, capacity=None)
    observation, ready = started(TWO, cluster), make_online_scheduler("pmod", None)
    assert not changes(ready.revise(round_at(observation, TWO, cluster), observation))
    four = chain(3, (4, 4, 4))
    scaled = replace(started(four, cluster), schedule=observation.schedule)
    assert not changes(ready.revise(round_at(scaled, four, cluster), scaled))


def test_a_schedule_does_not_lose_and_gain_nodes_in_one_revision() -> None:
    cluster = available(nodes(4, capacity=None), "n1", "n2", "n4")
    observation = started(TWO, nodes(3, capacity=None), cluster)
    ready = make_online_scheduler("pmod", None)
    revision = ready.revise(round_at(observation, TWO, cluster), observation)
    assert revision is not None
    assert revision.schedule is not None
    assert revision.schedule.nodes == ("n1", "n2")
    assert {move.target.node for move in revision.moves} <= {"n1", "n2"}
    moved = {m.executor.name: m.target for m in revision.moves}
    executors = {
        name: replace(found, node=moved[name].node, slot=moved[name].index) if name in moved else found
        for name, found in observation.executors.items()
    }
    later = replace(observation, executors=executors, schedule=revision.schedule)
    again = ready.revise(round_at(later, TWO, cluster), later)
    assert again is not None
    assert again.schedule is not None
    assert (again.moves, again.schedule.nodes) == ((), ("n1", "n2", "n4"))


def test_without_a_slot_nothing_changes_and_the_reason_is_given() -> None:
    cluster = available(nodes(3, capacity=None))
    observation = started(TWO, nodes(3, capacity=None), cluster)
    revision = make_online_scheduler("pmod", None).revise(round_at(observation, TWO, cluster), observation)
    assert revision is not None
    assert not revision.changes
    assert revision.text == "no plan: no free slot: 6 executors wait"


sizes = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6))
node_names = st.sets(st.sampled_from(["n1", "n2", "n3", "n4", "n5"]), min_size=1)


@given(sizes, sizes, node_names, node_names, st.booleans())
def test_only_executors_of_lost_nodes_move_and_every_executor_has_a_live_node(
    before: tuple[int, int, int], after: tuple[int, int, int], start: set[str], now: set[str], gated: bool
) -> None:
    all_nodes = nodes(5, capacity=None)
    cluster = available(all_nodes, *now)
    observation = started(chain(2, before), available(all_nodes, *start), cluster, gated)
    topology = chain(2, after)
    revision = revise(topology, observation, cluster) or Revision()
    if gated and not now & start:
        assert revision.text.startswith("no plan: ")  # a schedule cannot lose all its nodes at once
        return
    places = observation.places
    assert all(move.source == places[move.executor.name] for move in revision.moves)
    assert all(move.source.node not in now for move in revision.moves)
    slots = {e: places[e.name] for e in topology.executors if e.name in places}
    slots |= {move.executor: move.target for move in revision.moves}
    slots |= revision.added
    assert set(slots) == set(topology.executors)
    assert {slot.node for slot in slots.values()} <= now
    assert revision.parallelism == {
        name: size for name, was, size in zip("sbk", before, after, strict=True) if was != size
    }
    assert (revision.schedule is None) or gated
    if revision.schedule is not None:
        assert revision.schedule.unserved is None
        assert {slot.node for slot in slots.values()} <= set(revision.schedule.nodes) <= now


def loaded_window(at_s: float, busy: dict[str, float], topology: Topology, version: int = 0) -> Observation:
    """A window of five seconds; `busy` has the CPU points per executor of a component."""
    places = {e.name: f"n{e.index % 3 + 1}/0" for e in topology.executors}
    loads = {e.name: busy.get(e.component, 50.0) for e in topology.executors}
    window = observed(at_s, places, {}, load=loads, cluster=nodes(3, capacity=None))
    return replace(window, since_s=at_s - 5, version=version)


def new_parallelism(topology: Topology, windows: Sequence[Observation], **params: str) -> list[dict[str, int]]:
    """New parallelism after each window."""
    ready = Pmod(PmodParams(**params))  # type: ignore[arg-type]
    found = [ready.revise(round_at(window, topology, nodes(3, capacity=None)), window) for window in windows]
    return [dict(revision.parallelism) if revision else {} for revision in found]


def test_a_component_that_was_busy_for_three_windows_gets_a_quarter_more_executors() -> None:
    topology = chain(3, (2, 5, 1))
    windows = [loaded_window(5.0 * at, {"b": 81.0, "s": 99.0}, topology) for at in (1, 2, 3)]
    assert new_parallelism(topology, windows, elastic="busy") == [{}, {}, {"b": 7}]
    assert new_parallelism(topology, windows) == [{}, {}, {}]
    calm = [loaded_window(5.0 * at, {"b": 80.0}, topology) for at in range(1, 9)]
    assert new_parallelism(topology, calm, elastic="busy") == [{}] * 8


def test_a_component_that_was_idle_for_twelve_windows_loses_a_fifth_of_its_executors() -> None:
    topology = chain(3, (2, 4, 1))
    windows = [loaded_window(5.0 * at, {"b": 29.0, "k": 1.0}, topology) for at in range(1, 13)]
    assert new_parallelism(topology, windows, elastic="busy") == [{}] * 11 + [{"b": 3}]  # k has one


@pytest.mark.parametrize("fault", ["incomplete", "overlapping", "another version", "calm"])
def test_windows_in_a_row_are_complete_and_of_one_topology(fault: str) -> None:
    topology = chain(3, (2, 2, 2))
    windows = [loaded_window(5.0 * at, {"b": 90.0}, topology) for at in range(1, 7)]
    other = {
        "incomplete": replace(windows[2], complete=False),
        "overlapping": replace(windows[2], since_s=8.0),
        "another version": loaded_window(15.0, {"b": 90.0}, topology, version=1),
        "calm": loaded_window(15.0, {"b": 50.0}, topology),
    }[fault]
    if fault == "another version":
        windows[3:] = [replace(window, version=1) for window in windows[3:]]
    parallelism = new_parallelism(topology, [*windows[:2], other, *windows[3:]], elastic="busy")
    first = next(at for at, sizes in enumerate(parallelism) if sizes)
    assert first == {"incomplete": 3, "overlapping": 3, "another version": 4, "calm": 5}[fault]


def test_components_that_more_executors_do_not_help_keep_theirs() -> None:
    spout, b, k = chain(3, (2, 2, 2)).components
    copies = replace(b, inputs=tuple(replace(entry, grouping="all") for entry in b.inputs))
    first = replace(k, inputs=tuple(replace(entry, grouping="global") for entry in k.inputs))
    topology = replace(chain(3), components=(spout, copies, first))
    windows = [loaded_window(5.0 * at, {"s": 99.0, "b": 99.0, "k": 99.0}, topology) for at in range(1, 6)]
    assert new_parallelism(topology, windows, elastic="busy") == [{}] * 5


def test_details_have_the_counts_of_busy_and_idle_windows() -> None:
    topology = resized(TWO, {"b": 4})
    window = loaded_window(5.0, {"b": 90.0}, topology)
    ready = make_online_scheduler("pmod", None, parameters(("elastic=busy",)))
    revision = ready.revise(round_at(window, topology, nodes(3, capacity=None)), window)
    assert revision is not None
    assert not revision.changes
    assert revision.details["elastic"]["components"]["b"] == {"busy": 0.9, "above": 1, "below": 0}
    window = replace(window, changes=(Change.of(1.0, "clock", "n1"),))
    assert replaced(revision, details={}) == Revision(text="nothing is to be changed")
    assert not changes(make_online_scheduler("pmod", None).revise(round_at(window, topology), window))
