"""Scripted events: valid entries of an agenda, and errors about impossible ones."""

import pytest

from campaign.agenda.agenda import agenda_of
from campaign.agenda.plan import CombinationPlan, plan_of
from controller.coordinator.scripted_events import MoveExecutors, MoveRequest
from inventory.cluster import cluster_from_document
from inventory.documents import parse_document
from inventory.errors import InputError

CLUSTER = """
nodes:
  - {id: n1, slots: 4}
  - {id: n2, slots: 4}
  - {id: n3, slots: 3}
  - {id: n4, slots: 1, available: false}
"""

AGENDA = """\
name: mine
warmup_s: 10
duration_s: 20
workloads:
  - {name: wordcount, params: {workers: 2, ackers: 0, parallelism: {spout: 1, split: 1, count: 2}}, rate: {kind: max}}
  - {name: exclamation, params: {workers: 2}, rate: {kind: max}}
schedulers: [even]
timeline:
"""


def plan(*entries: str) -> CombinationPlan:
    document = parse_document(AGENDA + "".join(f"  - {entry}\n" for entry in entries), "a.yaml")
    return plan_of(agenda_of(document), cluster_from_document(parse_document(CLUSTER, "c.yaml")))


def test_a_timeline_becomes_plans_of_moves_for_each_workload_in_order_of_time() -> None:
    found = plan(
        "{at_s: 20, do: move, executor: 'count[1]', to: n3, workload: wordcount}",
        "{at_s: 5.5, do: move, executor: 'count[0]', to: n3/2, workload: wordcount}",
        "{at_s: 20, do: move, executor: 'split[0]', to: n3/1, workload: wordcount}",
    )
    assert found.events["exclamation", "even"] == ()
    assert found.events["wordcount", "even"] == (
        MoveExecutors(5.5, (MoveRequest("count[0]", "n3", 2),)),
        MoveExecutors(20, (MoveRequest("count[1]", "n3"), MoveRequest("split[0]", "n3", 1))),
    )


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{at_s: 1, executor: 'count[0]', to: n3}", r"a\.yaml:9: timeline\[0\]: the key 'do' is missing"),
        (
            "{at_s: 1, do: mve, executor: 'count[0]', to: n3}",
            r"a\.yaml:9: timeline\[0\]\.do: 'mve' is none of the valid values; did you mean 'move'\?",
        ),
        ("{at_s: -1, do: move, executor: 'count[0]', to: n3}", r"a\.yaml:9: timeline\[0\]\.at_s: got -1"),
        ("{at_s: 1, do: move, exector: 'count[0]', to: n3}", r"timeline\[0\]\.exector: .*did you mean 'executor'"),
        (
            "{at_s: 30, do: move, executor: 'count[0]', to: n3, workload: wordcount}",
            r"a\.yaml:9: timeline\[0\]\.at_s: the sources stop at 30 s",
        ),
        (
            "{at_s: 1, do: move, executor: 'count[0]', to: n3, workload: wordcont}",
            r"a\.yaml:9: timeline\[0\]\.workload: .*'wordcont'; did you mean 'wordcount'",
        ),
        (
            "{at_s: 1, do: move, executor: 'count[0]', to: n3}",
            r"a\.yaml:9: timeline\[0\]\.executor: exclamation under even has no executor 'count\[0\]'",
        ),
        (
            "{at_s: 1, do: move, executor: 'count[7]', to: n3, workload: wordcount}",
            r"a\.yaml:9: timeline\[0\]\.executor: .*'count\[7\]'; did you mean 'count\[[01]\]'",
        ),
        (
            "{at_s: 1, do: move, executor: 'count[0]', to: n33, workload: wordcount}",
            r"a\.yaml:9: timeline\[0\]\.to: there is no available node 'n33'; did you mean 'n3'",
        ),
        (
            "{at_s: 1, do: move, executor: 'count[0]', to: n4, workload: wordcount}",
            r"a\.yaml:9: timeline\[0\]\.to: there is no available node 'n4'",
        ),
        (
            "{at_s: 1, do: move, executor: 'count[0]', to: n3/3, workload: wordcount}",
            r"a\.yaml:9: timeline\[0\]\.to: node 'n3' has no slot '3'; valid: 0, 1, 2",
        ),
        (
            "{at_s: 1, do: move, executor: 'count[0]', to: n3/, workload: wordcount}",
            r"a\.yaml:9: timeline\[0\]\.to: node 'n3' has no slot ''",
        ),
    ],
)
def test_an_impossible_event_is_refused_with_its_place(entry: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan(entry)


def test_an_executor_may_be_at_the_target_of_a_move_already() -> None:
    move = "{at_s: 1, do: move, executor: 'count[0]', to: n3/1, workload: wordcount}"
    found = plan(move, move.replace("at_s: 1", "at_s: 2"))
    assert [each.at_s for each in found.events["wordcount", "even"]] == [1, 2]


def test_an_executor_cannot_move_to_two_slots_at_once() -> None:
    entries = (f"{{at_s: 2, do: move, executor: 'count[0]', to: n3/{slot}, workload: wordcount}}" for slot in (0, 1))
    with pytest.raises(InputError, match=r"a\.yaml:10: timeline\[1\]\.executor: count\[0\] is moved twice at 2 s"):
        plan(*entries)
