"""Validation of revisions: every fault is named, and valid revisions pass."""

from dataclasses import replace
from typing import Any, ClassVar

import pytest
from msgspec import structs
from observed_rounds import nodes, observed, round_at

from inventory.cluster import ExistingWorker
from inventory.errors import InputError, RunError
from scheduler.algorithms.even import Even, EvenParams
from scheduler.online.observation import Expected
from scheduler.online.revision import Revision, Rhythm
from scheduler.online.validation import CheckedOnline
from scheduler.problem import CommunicationSchedule, Move, Slot
from scheduler.registry import InvalidPlanError
from workloads.topology import Executor

CLUSTER = structs.replace(
    nodes(3, frequencies_hz=(1000, 2000)),
    existing=(ExistingWorker("other", "n3", 1, ("x[0]",)),),
)
WITHOUT_N3 = structs.replace(CLUSTER, nodes=(*CLUSTER.nodes[:2], structs.replace(CLUSTER.nodes[2], available=False)))
OBSERVATION = observed(60, cluster=CLUSTER)
S0, S1, B0, B2 = Executor("s", 0), Executor("s", 1), Executor("b", 0), Executor("b", 2)
SCALED = Revision("scale", "busy", parallelism={"b": 3, "k": 1}, added={B2: Slot("n1", 0)})
MOVE = Move("t", S0, Slot("n1", 0), Slot("n2", 0))
VALID = Revision("cut", "less between nodes", (MOVE,), frequencies={"n1": 2000, "n2": None}, details={"cut": [1, None]})


class FixedRevision(Even):
    """Scheduler that returns or raises `answer`."""

    name: ClassVar[str] = "revising"
    rhythm: ClassVar[Rhythm] = Rhythm()
    answer: Any = None

    def revise(self, problem: Any, observation: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def validated(answer: Any, cluster: Any = CLUSTER) -> Any:
    ready = CheckedOnline(FixedRevision, EvenParams())
    ready.inner.answer = answer  # type: ignore[attr-defined]
    return ready.revise(round_at(OBSERVATION, cluster=cluster), OBSERVATION)


def faults(answer: Any, cluster: Any = CLUSTER) -> list[str]:
    with pytest.raises(InvalidPlanError) as caught:
        validated(answer, cluster)
    return list(caught.value.faults)


@pytest.mark.parametrize("right", [None, Revision(), Revision(details={"why": "nothing"}), VALID, SCALED])
def test_valid_revisions_pass(right: Any) -> None:
    assert validated(right) == right


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        (5, "it returned an int, a Revision or None was expected"),
        (replace(VALID, reason="cuts"), "unknown reason 'cuts'; did you mean 'cut'?"),
        (replace(VALID, reason=""), "it changes something without a reason, which is one of overload, cut, "),
        (replace(VALID, text=None), "text is None, text was expected"),
        (replace(VALID, wave=-1), "wave is -1, a number of executors was expected"),
        (replace(VALID, expects=None), "expects is None, an Expected was expected"),
        (
            replace(VALID, expects=Expected(load=0.5)),  # type: ignore[arg-type]
            "expects.load is a float, a mapping from nodes to loads was expected",
        ),
        (replace(VALID, expects=Expected(load={"n1": -1.0})), "expects: 'n1': -1.0 is no number >= 0"),
        (replace(VALID, expects=Expected(cut=float("nan"))), "expects: 'cut': nan is no number >= 0"),
        (replace(VALID, moves=7), "moves is an int, a sequence of moves was expected"),
        (replace(VALID, moves=("s[0]",)), "moves: 's[0]' is a str, a Move was expected"),
        (replace(VALID, moves=(replace(MOVE, topology="x"),)), "moves: s[0]: unknown topology 'x'"),
        (replace(VALID, moves=(replace(MOVE, executor="s[0]"),)), "moves: 's[0]' is a str, an Executor was expected"),
        (
            replace(VALID, moves=(replace(MOVE, executor=Executor("s", 2)),)),
            "moves: unknown executor s[2]: 's' has 2 executors",
        ),
        (replace(VALID, moves=(MOVE, MOVE)), "moves: s[0] moves 2 times"),
        (
            replace(VALID, moves=(replace(MOVE, executor=S1),)),
            "moves: s[1] did not run in slot 0 of 'n1', but in slot 0 of 'n2'",
        ),
        (
            replace(VALID, moves=(replace(MOVE, target=MOVE.source),)),
            "moves: s[0] moves to slot 0 of 'n1', where it is",
        ),
        (replace(VALID, moves=(replace(MOVE, target=Slot("n9", 0)),)), "moves: s[0]: unknown node 'n9'"),
        (
            replace(VALID, moves=(replace(MOVE, target=Slot("n2", 2)),)),
            "moves: s[0]: slot 2 is beyond the 2 slots of 'n2'",
        ),
        (
            replace(VALID, moves=(replace(MOVE, target=Slot("n3", 1)),)),
            "moves: s[0]: slot 1 of 'n3' has a worker of the topology 'other'",
        ),
        (replace(VALID, parallelism=[("b", 3)]), "parallelism is a list, a mapping was expected"),
        (replace(VALID, parallelism={"bb": 3}), "parallelism: 'bb' is no component; "),
        (replace(VALID, parallelism={"s": 3}), "added: s[2] has no slot"),
        (replace(VALID, parallelism={"b": 0}), "parallelism: 'b': 0 is no number of executors from 1 to 1024"),
        (replace(VALID, parallelism={"b": 1025}), "parallelism: 'b': 1025 is no number of executors"),
        (replace(VALID, parallelism={"b": True}), "parallelism: 'b': True is no number of executors"),
        (replace(VALID, parallelism={"b": 2}), "parallelism: 'b' has 2 executors already"),
        (replace(VALID, parallelism={"b": 3}), "added: b[2] has no slot"),
        (replace(VALID, added={B2: Slot("n1", 0)}), "added: b[2] is no executor that `parallelism` adds"),
        (replace(VALID, added={"b[2]": Slot("n1", 0)}), "added: 'b[2]' is no executor that `parallelism` adds"),
        (replace(VALID, parallelism={"b": 3}, added={B2: Slot("n1", 9)}), "added: b[2]: slot 9 is beyond the 2 slots"),
        (
            replace(VALID, parallelism={"b": 3}, added={B2: Slot("n3", 1)}),
            "added: b[2]: slot 1 of 'n3' has a worker of the topo",
        ),
        (
            replace(VALID, parallelism={"b": 1}, moves=(Move("t", Executor("b", 1), Slot("n2", 0), Slot("n1", 0)),)),
            "moves: b[1] moves, and `parallelism` removes it",
        ),
        (
            replace(VALID, schedule=CommunicationSchedule(("n1",), (), 1)),
            "schedule: the run follows no communication schedule",
        ),
        (replace(VALID, frequencies=5), "frequencies is an int, a mapping from nodes to Hz was expected"),
        (replace(VALID, frequencies={"n1": 1600}), "frequencies: 'n1' does not offer 1600 Hz, the nearest is 2000"),
        (replace(VALID, frequencies={"n8": None}), "frequencies: unknown node 'n8'"),
        (replace(VALID, details={"x": {1, 2}}), "details.x: a set cannot be written as JSON"),
    ],
)
def test_every_fault_of_a_revision_is_named(wrong: Any, fault: str) -> None:
    (found,) = faults(wrong)
    assert found.startswith(fault)


SCHEDULE = CommunicationSchedule(("n1", "n2"), ((0, 1), (1, 0)), 1)


def schedule_faults(schedule: Any, moves: Any = ()) -> list[str]:
    """Return the faults of a schedule in a run that follows one, with the executors of `OBSERVATION` on n1 and n2."""
    ready = CheckedOnline(FixedRevision, EvenParams())
    ready.inner.answer = Revision("schedule", moves=moves, schedule=schedule)  # type: ignore[attr-defined]
    observation = structs.replace(OBSERVATION, schedule=SCHEDULE)
    try:
        ready.revise(round_at(observation, cluster=CLUSTER), observation)
    except InvalidPlanError as error:
        return list(error.faults)
    return []


def test_a_schedule_for_the_nodes_in_use_after_the_moves_passes() -> None:
    one, both = CommunicationSchedule(("n1",), ((0,),), 2), CommunicationSchedule(("n2", "n1"), ((1, 0), (0, 1)), 1)
    moves_off_n2 = [
        Move("t", Executor.named(name), slot, Slot("n1", 1))
        for name, slot in OBSERVATION.places.items()
        if slot.node == "n2"
    ]
    assert schedule_faults(both) == []
    assert schedule_faults(one, moves_off_n2) == []
    assert schedule_faults(one, moves_off_n2[1:]) == [
        f"schedule: node 'n2' is missing, where {moves_off_n2[0].executor.name} runs"
    ]


@pytest.mark.parametrize(
    ("schedule", "fault"),
    [
        ("steps", "schedule is a str, a CommunicationSchedule was expected"),
        (CommunicationSchedule(("n1", "n9"), ((0, 1), (1, 0)), 1), "schedule: unknown node 'n9'"),
        (structs.replace(SCHEDULE, steps=((0, 1),)), "schedule: 'n1' has no step in which it sends to 'n2'"),
        (structs.replace(SCHEDULE, steps=((0, 2), (1, 0))), "schedule: step 0, sender 1: 2 is no node's index"),
        (structs.replace(SCHEDULE, steps=()), "schedule: 'n1' has no step in which it sends to 'n1'"),
        (structs.replace(SCHEDULE, stages=5), "schedule: 5 stages, 't' has 2, and 1 is for a common step"),
    ],
)
def test_every_fault_of_a_schedule_is_named(schedule: Any, fault: str) -> None:
    (found,) = schedule_faults(schedule)
    assert found.startswith(fault)


def test_moves_to_a_lost_node_are_refused() -> None:
    revision = replace(VALID, moves=(replace(MOVE, target=Slot("n3", 0)),))
    assert faults(revision, WITHOUT_N3) == ["moves: s[0]: node 'n3' is not available"]


def test_all_faults_are_named_together() -> None:
    revision = Revision("cuts", moves=(MOVE, replace(MOVE, executor=B0, target=Slot("n9", 0))), frequencies={"n1": 3})  # type: ignore[arg-type]
    assert len(faults(revision)) == 3


def test_an_exception_names_the_scheduler_and_its_line() -> None:
    with pytest.raises(RunError, match=r"the scheduler 'revising' raised KeyError: 'x' \(.*\.py:\d+\)"):
        validated(KeyError("x"))


def test_a_scheduler_without_revise_is_refused() -> None:
    with pytest.raises(InputError, match="'even' does not revise running topologies"):
        CheckedOnline(Even, EvenParams()).revise(round_at(OBSERVATION), OBSERVATION)


def test_predicted_overload_is_allowed() -> None:
    revision = replace(VALID, expects=Expected(load={"n1": 1.5}))
    assert validated(revision) == revision
