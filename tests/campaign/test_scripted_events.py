"""Scripted events other than moves: the events of each run, and errors about impossible ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.agenda.agenda import agenda_of
from campaign.agenda.plan import CombinationPlan, plan_of
from controller.coordinator.scripted_events import (
    AskScheduler,
    KillAgent,
    KillWorker,
    MoveExecutors,
    MoveRequest,
    NodeDown,
    NodeUp,
    ScaleComponents,
    ScriptedEvent,
    SetCpu,
    withheld_nodes,
)
from inventory.cluster import cluster_from_document
from inventory.documents import Located, dump_json, parse_document
from inventory.errors import InputError, UnfitError
from inventory.values import Slot
from workloads.rates import Constant, Max, Steps

CLUSTER = """
nodes:
  - {id: n1, slots: 4, address: 192.0.2.1}
  - {id: n2, slots: 4, address: 192.0.2.2}
  - {id: n3, slots: 3, address: 192.0.2.3}
  - {id: n4, slots: 1, address: 192.0.2.4, available: false}
  - {id: n5, slots: 0, address: 192.0.2.5}
"""

AGENDA = """\
name: mine
warmup_s: 10
duration_s: 20
workloads:
  - {name: wordcount, params: {workers: 2, ackers: 0, parallelism: {spout: 1, split: 1, count: 2}}, rate: RATE}
  - {name: exclamation, params: {workers: 2}, rate: {kind: constant, tuples_per_s: 9}}
schedulers: [even, {name: t-storm, label: watched, online: {}}]
timeline:
"""

CONSTANT = "{kind: constant, tuples_per_s: 10}"
STEPS = "{kind: steps, steps: [[0, 10], [8, 20], [16, 30]]}"


def plan(*entries: str, rate: str = CONSTANT, text: str = AGENDA, cluster: str = CLUSTER) -> CombinationPlan:
    timeline = "".join(f"  - {entry}\n" for entry in entries) or "  []\n"
    document = parse_document(text.replace("RATE", rate) + timeline, "a.yaml")
    return plan_of(agenda_of(document), cluster_from_document(parse_document(cluster, "c.yaml")))


def events(found: CombinationPlan, workload: str = "wordcount", scheduler: str = "even") -> tuple[ScriptedEvent, ...]:
    return found.events[workload, scheduler]


def test_the_events_of_a_run_are_ordered_by_time_and_those_of_one_time_as_listed() -> None:
    found = plan(
        "{at_s: 9, do: kill, agent: n2, for_s: 3}",
        "{at_s: 5, do: node_up, node: n3}",
        "{at_s: 6, do: revise}",
        "{at_s: 7, do: set_cpu, node: n1, settings: {max_ghz: 1.2}}",
        "{at_s: 6, do: kill, worker: n1/3}",
        "{at_s: 8, do: node_down, node: n2}",
        "{at_s: 2, do: kill, agent: n1}",
    )
    assert events(found) == (
        KillAgent(2, "n1", 0),
        NodeUp(5, "n3"),
        AskScheduler(6),
        KillWorker(6, Slot("n1", 3)),
        SetCpu(7, "n1", {"max_ghz": 1.2}),
        NodeDown(8, "n2"),
        KillAgent(9, "n2", 3),
    )
    assert set(found.events) == {(w, s) for w in ("wordcount", "exclamation") for s in ("even", "watched")}
    assert all(each == events(found) for each in found.events.values())


def test_events_can_be_limited_to_a_workload_or_a_scheduler() -> None:
    found = plan(
        "{at_s: 1, do: kill, worker: n1/0, workload: wordcount}",
        "{at_s: 2, do: kill, worker: n1/0, scheduler: watched}",
        "{at_s: 3, do: kill, worker: n1/0, workload: exclamation, scheduler: even}",
        "{at_s: 4, do: move, executor: 'count[0]', to: n3, workload: wordcount, scheduler: even}",
    )
    times = {pair: [event.at_s for event in each] for pair, each in found.events.items()}
    assert times == {
        ("wordcount", "even"): [1, 4],
        ("wordcount", "watched"): [1, 2],
        ("exclamation", "even"): [3],
        ("exclamation", "watched"): [2],
    }
    assert found.events["wordcount", "even"][1] == MoveExecutors(4, (MoveRequest("count[0]", "n3"),))


def test_a_node_that_comes_up_later_has_no_executors_at_the_start() -> None:
    found = plan(
        "{at_s: 3, do: node_up, node: n1, scheduler: even}",
        "{at_s: 5, do: node_down, node: n2}",
        "{at_s: 9, do: node_up, node: n2}",
    )
    used = {pair: {slot.node for slot in placed.places.values()} for pair, placed in found.placed.items()}
    assert used["wordcount", "even"] == {"n2", "n3"}
    assert "n1" in used["wordcount", "watched"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans())))
def test_a_node_is_withheld_if_it_comes_up_before_it_goes_down(script: list[tuple[str, bool]]) -> None:
    listed = [NodeUp(at, node) if up else NodeDown(at, node) for at, (node, up) in enumerate(script)]
    expected = {node for node in "abc" if next((up for each, up in script if each == node), False)}
    assert withheld_nodes(listed) == expected


def test_changes_of_the_rate_become_steps_of_the_workload() -> None:
    later, sooner = (
        "{at_s: 12, do: rate, tuples_per_s: 5}",
        "{at_s: 4.5, do: rate, tuples_per_s: 0, workload: wordcount}",
    )
    found = plan(later, sooner)
    rates = {label: application.rate for label, application in found.applications.items()}
    assert rates == {
        "wordcount": Steps(((0, 10), (4.5, 0), (12, 5))),
        "exclamation": Steps(((0, 9), (12, 5))),
    }
    assert plan(later, rate=STEPS).applications["wordcount"].rate == Steps(((0, 10), (8, 20), (12, 5), (16, 30)))
    assert plan().applications["wordcount"].rate == Constant(10)
    assert all(each == () for each in found.events.values())


def test_the_rate_of_another_workload_may_be_of_any_kind() -> None:
    found = plan("{at_s: 12, do: rate, tuples_per_s: 5, workload: exclamation}", rate="{kind: max}")
    assert found.applications["wordcount"].rate == Max()


def test_a_resolved_agenda_has_the_rates_as_steps_and_reads_back_to_the_same_plan() -> None:
    first = plan("{at_s: 4, do: rate, tuples_per_s: 5}", "{at_s: 6, do: kill, worker: n1/3}")
    assert [entry.rate for entry in first.agenda.workloads] == [Steps(((0, 10), (4, 5))), Steps(((0, 9), (4, 5)))]
    cluster = Located(first.cluster, parse_document("{}").origin)
    again = plan_of(agenda_of(parse_document(dump_json(first.agenda), "campaign.json")), cluster)
    assert again.agenda == first.agenda
    assert again.events == first.events


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{at_s: 1, do: nod_up, node: n1}", r"\.do: 'nod_up' is none of the valid values; did you mean 'node_up'\?"),
        ("{at_s: 1, node: n1}", r": the key 'do' is missing"),
        ("{at_s: 1, do: node_up, nod: n1}", r"\.nod: unknown key 'nod'; did you mean 'node'"),
        ("{at_s: 1, do: node_up, node: m1}", r"\.node: there is no available node 'm1'; valid: n1, n2, n3, n5"),
        ("{at_s: 1, do: node_up, node: n4}", r"\.node: there is no available node 'n4'"),
        ("{at_s: 30, do: revise}", r"\.at_s: the sources stop at 30 s, before 30 s"),
        ("{at_s: 1, do: revise, scheduler: wached}", r"\.scheduler: the agenda has no scheduler 'wached'; .*'watched'"),
        ("{at_s: 1, do: revise, scheduler: even}", r": none of these schedulers has 'online': even"),
        ("{at_s: 1, do: scale, component: count, to: 0}", r"\.to: got 0: expected a whole number >= 1"),
        ("{at_s: 1, do: scale, component: count, to: 1025}", r"\.to: got 1025: expected a whole number <= 1024"),
        ("{at_s: 1, do: scale, component: [], to: 3}", r"\.component: "),
        ("{at_s: 1, do: scale, to: 3}", r": the key 'component' is missing"),
        ("{at_s: 1, do: rate, tuples_per_s: -1}", r"\.tuples_per_s: got -1"),
        ("{at_s: 1, do: rate, tuples_per_s: 5, scheduler: even}", r"\.scheduler: unknown key 'scheduler'"),
        ("{at_s: 1, do: rate, tuples_per_s: 0}", r"\.tuples_per_s: the sources of 'wordcount' would never emit again"),
        ("{at_s: 0, do: rate, tuples_per_s: 5}", r"\.at_s: the rate of 'wordcount' changes at 0 s already"),
        ("{at_s: 1, do: set_cpu, node: n1, settings: {}}", r"\.settings: has no setting"),
        ("{at_s: 1, do: set_cpu, node: n1, settings: {max_gz: 1}}", r"\.settings\.max_gz: .*did you mean 'max_ghz'"),
        ("{at_s: 1, do: set_cpu, node: n1, settings: {min_ghz: 2, max_ghz: 1}}", r"\.settings: min_ghz: got 2"),
        ("{at_s: 1, do: kill}", r": give 'worker' or 'agent'"),
        ("{at_s: 1, do: kill, worker: n1/0, agent: n1}", r": give 'worker' or 'agent'"),
        ("{at_s: 1, do: kill, worker: n1/0, for_s: 3}", r"\.for_s: a worker starts again at once"),
        ("{at_s: 1, do: kill, worker: n1}", r"\.worker: got 'n1', expected a worker: node/slot"),
        ("{at_s: 1, do: kill, worker: n1/4}", r"\.worker: node 'n1' has no slot '4'; valid: 0, 1, 2, 3"),
        ("{at_s: 1, do: kill, agent: n9}", r"\.agent: there is no available node 'n9'"),
        ("{at_s: 1, do: kill, agent: n1, for_s: 0}", r"\.for_s: got 0"),
    ],
)
def test_an_event_that_is_wrong_by_itself_is_refused_with_its_place(entry: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"^a\.yaml:9: timeline\[0\]{message}"):
        plan(entry)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (
            ["{at_s: 1, do: node_down, node: n1}", "{at_s: 2, do: node_down, node: n1}"],
            r"timeline\[1\]\.node: in wordcount under even, at 2 s, node 'n1' is not up",
        ),
        (
            ["{at_s: 3, do: node_up, node: n1}", "{at_s: 2, do: node_up, node: n1}"],
            r"timeline\[0\]\.node: in wordcount under even, at 3 s, node 'n1' is up already",
        ),
        (
            [
                "{at_s: 1, do: node_down, node: n1}",
                "{at_s: 2, do: node_down, node: n2}",
                "{at_s: 2, do: node_down, node: n3}",
            ],
            r"timeline\[2\]\.node: in wordcount under even, at 2 s, node 'n3' is the last one: no executor could run",
        ),
        (
            [f"{{at_s: 1, do: node_up, node: n{k}, workload: exclamation}}" for k in (1, 2, 3)],
            r"timeline\[0\]\.node: exclamation under even has no node at the start, when n1, n2, n3 are not up",
        ),
        (
            [
                "{at_s: 3, do: node_up, node: n1}",
                "{at_s: 2, do: move, executor: 'count[0]', to: n1/0, workload: wordcount}",
            ],
            r"timeline\[1\]\.to: in wordcount under even, at 2 s, node 'n1' is not up",
        ),
        (
            ["{at_s: 4, do: rate, tuples_per_s: 5}", "{at_s: 4, do: rate, tuples_per_s: 6, workload: exclamation}"],
            r"timeline\[1\]\.at_s: the rate of 'exclamation' changes at 4 s already",
        ),
    ],
)
def test_events_that_contradict_each_other_are_refused_with_their_place(entries: list[str], message: str) -> None:
    with pytest.raises(InputError, match=rf"^a\.yaml:\d+: {message}"):
        plan(*entries)


def test_an_executor_can_move_to_a_node_while_it_is_up() -> None:
    moves = [f"{{at_s: {at_s}, do: move, executor: 'count[0]', to: n1, workload: wordcount}}" for at_s in (4, 7)]
    assert plan("{at_s: 4, do: node_up, node: n1}", moves[0], "{at_s: 6, do: node_down, node: n1}")
    with pytest.raises(InputError, match=r"timeline\[2\]\.to: .* at 7 s, node 'n1' is not up"):
        plan("{at_s: 4, do: node_up, node: n1}", "{at_s: 6, do: node_down, node: n1}", moves[1])


def scale(component: str, to: int, at_s: float = 1, more: str = ", workload: wordcount") -> str:
    return f"{{at_s: {at_s}, do: scale, component: {component}, to: {to}{more}}}"


def test_components_are_scaled_one_by_one_or_together() -> None:
    found = plan(
        scale("count", 5, 4), scale("[split, count]", 3, 9), scale("exclaim1", 2, 5, ", workload: exclamation")
    )
    assert events(found) == (ScaleComponents(4, ("count",), 5), ScaleComponents(9, ("split", "count"), 3))
    assert events(found, "exclamation") == (ScaleComponents(5, ("exclaim1",), 2),)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([scale("cout", 5)], r"0\]\.component: wordcount under even has no component 'cout'; .*'count'"),
        ([scale("[split, cont]", 5)], r"0\]\.component\[1\]: wordcount under even has no component 'cont'; .*'count'"),
        ([scale("count", 5, 1, "")], r"0\]\.component: exclamation under even has no component 'count'"),
        ([scale("[count, count]", 5)], r"0\]\.component\[1\]: 'count' is listed twice"),
        ([scale("count", 2)], r"0\]\.to: in wordcount under even, at 1 s, 'count' has 2 executors already"),
        ([scale("count", 3, 9), scale("count", 3, 4)], r"0\]\.to: .* at 9 s, 'count' has 3 executors already"),
    ],
)
def test_a_scaling_that_is_impossible_is_refused_with_its_place(entries: list[str], message: str) -> None:
    with pytest.raises(InputError, match=rf"^a\.yaml:\d+: timeline\[{message}"):
        plan(*entries)


@pytest.mark.parametrize("how", ["live", "restart"])
def test_scaling_a_component_with_a_fixed_number_of_executors_is_refused(how: str) -> None:
    text = AGENDA.replace("online: {}", f"online: {{revision: {{how: {how}}}}}").replace("[even, ", "[")
    dag = "{name: star, params: {workers: 2, sources: 2}, rate: {kind: max}}"
    two = text.replace("schedulers", f"  - {dag}\nschedulers")
    one = text.replace("schedulers", f"  - {dag.replace('sources: 2', 'sources: 1')}\nschedulers")
    with pytest.raises(
        InputError,
        match=r"^a\.yaml:10: timeline\[0\]\.component: in star under watched, 'source1' keeps its number of "
        "executors: it is one of several spouts",
    ):
        plan(scale("source1", 5, more=", workload: star"), text=two)
    assert plan(scale("source1", 5, more=", workload: star"), text=one)
    assert plan(scale("spout", 2), text=text)


def test_an_executor_can_be_moved_while_it_exists() -> None:
    moves = [f"{{at_s: {at_s}, do: move, executor: 'count[2]', to: n1, workload: wordcount}}" for at_s in (2, 5, 9)]
    scalings = [scale("count", 3, 4), scale("count", 1, 7)]
    assert plan(*scalings, moves[1])
    for at in (0, 2):
        with pytest.raises(
            InputError, match=r"timeline\[2\]\.executor: wordcount under even has no executor 'count\[2\]'"
        ):
            plan(*scalings, moves[at])


@pytest.mark.parametrize("rate", ["{kind: max}", "{kind: poisson, tuples_per_s: 10}"])
def test_only_rates_of_steps_can_change(rate: str) -> None:
    with pytest.raises(
        InputError, match=r"timeline\[0\]\.do: the rate of 'wordcount' is '(max|poisson)'; only 'constant'"
    ):
        plan("{at_s: 1, do: rate, tuples_per_s: 5}", rate=rate)


def test_cpu_settings_must_fit_those_that_are_in_effect() -> None:
    text = AGENDA.replace(
        "timeline", "cpu: [{label: a, nodes: {}}, {label: b, nodes: {'*': {min_ghz: 1.5}}}]\ntimeline"
    )
    lower = [
        f"{{at_s: {at_s}, do: set_cpu, node: n1, settings: {{max_ghz: {ghz}}}}}" for at_s, ghz in ((2, 2), (4, 1.2))
    ]
    with pytest.raises(
        InputError, match=r"^a\.yaml:11: timeline\[1\]\.settings: min_ghz: got 1\.5, expected at most max_ghz"
    ):
        plan(*lower, text=text)
    assert plan("{at_s: 3, do: set_cpu, node: n1, settings: {min_ghz: 1}}", *lower, text=text)


def test_cpus_of_nodes_on_one_machine_cannot_be_set() -> None:
    with pytest.raises(UnfitError, match=r"^a\.yaml:9: timeline\[0\]\.node: the nodes n1, n2, n3, n5 are one machine"):
        plan(
            "{at_s: 1, do: set_cpu, node: n1, settings: {max_ghz: 1.2}}",
            cluster=CLUSTER.replace("192.0.2", "127.0.0"),
        )


def test_a_scheduler_whose_revisions_are_not_carried_out_cannot_empty_a_node() -> None:
    text = AGENDA.replace("online: {}", "online: {revision: {how: shadow}}")
    down = "{at_s: 1, do: node_down, node: n1"
    with pytest.raises(
        InputError, match=r"^a\.yaml:9: timeline\[0\]: .* revisions under 'watched' are not carried out"
    ):
        plan(f"{down}}}", text=text)
    assert plan(f"{down}, scheduler: even}}", "{at_s: 1, do: node_up, node: n2}", text=text)


def test_a_scheduler_whose_revisions_are_not_carried_out_cannot_be_given_more_executors() -> None:
    text = AGENDA.replace("online: {}", "online: {revision: {how: shadow}}")
    with pytest.raises(InputError, match=r"timeline\[0\]: the topology must change, but revisions under 'watched'"):
        plan(scale("count", 5), text=text)
    assert plan(scale("count", 5, more=", workload: wordcount, scheduler: even"), text=text)


@pytest.mark.parametrize("kind", ["node_down", "node_up"])
def test_nodes_of_a_schedule_of_the_agenda_cannot_come_and_go(kind: str) -> None:
    steps = "{nodes: [n1, n2, n3, n5], steps: [[0, 1, 2, 3], [1, 2, 3, 0], [2, 3, 0, 1], [3, 0, 1, 2]]}"
    text = AGENDA.replace("[even,", f"[{{name: pmod, gates: {{schedule: {steps}}}}},")
    with pytest.raises(InputError, match=r"^a\.yaml:9: timeline\[0\]: the runs under 'pmod' follow the communication"):
        plan(f"{{at_s: 1, do: {kind}, node: n1}}", text=text)


def test_nodes_come_and_go_where_the_scheduler_gives_the_schedule() -> None:
    text = AGENDA.replace("[even,", "[{name: pmod, gates: {}},")
    to = "{at_s: 2, do: move, executor: 'spout[0]', to: n2, workload: wordcount}"
    up, down = "{at_s: 1, do: node_up, node: n2}", "{at_s: 3, do: node_down, node: n1}"
    found = plan(up, to, down, text=text)
    gates = found.placed["wordcount", "pmod"].gates
    assert gates is not None
    assert "n2" not in gates.nodes
