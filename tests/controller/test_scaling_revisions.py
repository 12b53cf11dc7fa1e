"""Revisions that change numbers of executors: requests to the checkpoint loop, and wrong answers."""

from types import SimpleNamespace
from typing import Any

import pytest
from observed_rounds import chain, nodes, observed

from agents.protocol import Slot
from controller.coordinator.decider import Answer
from controller.coordinator.event_log import EventLog
from controller.coordinator.interfaces import UNSCALED, Carried, Scaling
from controller.coordinator.online_loop import OnlineLoop, OnlineSettings
from controller.coordinator.rescheduling import Answered, Carry, RevisionFinished, RevisionSettings
from controller.simulation.virtual_loop import run_in_virtual_time
from scheduler.online.observation import problem_at
from scheduler.online.revision import Revision, Rhythm, in_file, revision_of
from scheduler.problem import Problem
from workloads.topology import Executor

ADDED = {Executor("b", 2): Slot("n1", 1)}
LARGER = Revision("scale", "b is busy", parallelism={"b": 3}, added=ADDED)


class LoopWithOneAnswer:
    """Online loop whose scheduler gives one answer; `requests` are those to the checkpoint loop."""

    def __init__(self, answer: Revision | None, fixed: dict[str, str]) -> None:
        self.requests: list[tuple[Any, ...]] = []

        async def ask(_problem: Problem, _observation: Any) -> Answer:
            return Answer(answer, 0.1, 0.1)

        async def carry(*request: Any) -> Carried:
            self.requests.append(request)
            return Carried("done")

        scheduler: Any = SimpleNamespace(ask=ask)
        environment: Any = SimpleNamespace()
        problem = Problem(nodes(), (chain(),))
        settings = OnlineSettings(scheduler, Rhythm(), RevisionSettings(), problem, 60, {}, fixed)
        self.loop = OnlineLoop(settings, environment, EventLog(lambda *_event: None), carry, set())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("revision", "scaling"), [(LARGER, Scaling({"b": 3}, {"b[2]": Slot("n1", 1)})), (Revision("scale"), UNSCALED)]
)
def test_numbers_of_executors_and_their_slots_are_carried_out_together(revision: Revision, scaling: Scaling) -> None:
    recorder = LoopWithOneAnswer(None, {})
    finished = run_in_virtual_time(recorder.loop._carry_out(Carry(7, revision, 0)))
    assert isinstance(finished, RevisionFinished)
    assert finished.outcome == "done"
    assert recorder.requests == ([(7, (), None, scaling)] if scaling.parallelism else [])


@pytest.mark.parametrize(("fixed", "why"), [({}, ""), ({"k": "total"}, ""), ({"b": "no parts"}, "'b', which keeps")])
def test_a_revision_that_scales_what_cannot_be_scaled_is_a_wrong_answer(fixed: dict[str, str], why: str) -> None:
    answered = run_in_virtual_time(LoopWithOneAnswer(LARGER, fixed).loop._ask(1, observed(60, cluster=nodes())))
    assert isinstance(answered, Answered)
    assert (why in answered.fault) if why else not answered.fault


def test_numbers_of_executors_pass_through_files() -> None:
    assert revision_of(in_file(LARGER, chain().id)) == LARGER


def test_a_question_has_the_topology_with_the_executors_that_run() -> None:
    places = {"s[0]": "n1/0", "s[1]": "n2/0", "b[0]": "n1/0", "b[1]": "n2/0", "b[2]": "n1/1", "k[0]": "n2/0"}
    found = problem_at(Problem(nodes(), (chain(),)), observed(60, places, {}, cluster=nodes()))
    assert [c.parallelism for c in found.topologies[0].components] == [2, 3, 1]
