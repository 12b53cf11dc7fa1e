"""Revisions from the files of `millrace revise`: one online scheduler, asked once for every observation, in order.

Either of observations of a topology, or again of what it was asked in a run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import Any, cast

from msgspec import Struct

from inventory.cluster import Cluster
from inventory.documents import Located
from inventory.errors import InputError, RunError
from scheduler.deciding import KeptDecision, ResetInFile, SchedulerInFile, encode_answer, read_decisions
from scheduler.online.observation import Observation, check_observed, problem_at, with_places
from scheduler.online.revision import AnswerInFile, RevisionInFile, in_file
from scheduler.online.validation import CheckedOnline
from scheduler.problem import Problem, load_problem
from workloads.topology import Topology


class Decision(Struct, frozen=True):
    """Answer to one observation, as `millrace revise --json` prints it.

    Attributes:
        scheduler, params: who answered.
        at_s: end of the window.
        elapsed_s: seconds that it took.
        revision, text, details: as in `AnswerInFile`.
    """

    scheduler: str
    params: dict[str, Any]
    at_s: float
    elapsed_s: float
    revision: RevisionInFile | None
    text: str
    details: dict[str, Any]

    @property
    def answer(self) -> AnswerInFile:
        """The answer alone."""
        return AnswerInFile(self.revision, self.text, self.details)


@dataclass(frozen=True)
class ObservedRound:
    """The files of a running topology."""

    cluster: Located[Cluster]
    topology: Located[Topology]
    observations: Sequence[Located[Observation]]


def decide(ready: CheckedOnline, given: ObservedRound) -> Iterator[Decision]:
    """Yield the scheduler's answer to every observation, as soon as it is there.

    Raises:
        MillraceError: the files are invalid, the scheduler does not revise, or it failed.
    """
    problem = load_problem(ready.needs, given.cluster, [given.topology])
    observations = [with_places(each, problem) for each in given.observations]
    for located in observations:
        present = problem_at(problem, located.value) if ready.needs.scales else problem
        check_observed(located, present)
    for before, after in pairwise(observations):
        if after.value.at_s <= before.value.at_s:
            what = f"{after.value.at_s:g} is not after {before.value.at_s:g}, the observation before"
            raise (after.origin / "at_s").error(what)
    for observation in (located.value for located in observations):
        yield _decide(ready, problem_at(problem, observation, wanted=True), observation)


def _decide(ready: CheckedOnline, problem: Problem, observation: Observation) -> Decision:
    start = perf_counter()
    revision = ready.revise(problem, observation)
    elapsed_s = perf_counter() - start
    (topology,) = problem.topologies
    answer = in_file(revision, topology.id)
    asked = ready.name, dict(ready.params), observation.at_s, round(elapsed_s, 6)
    return Decision(*asked, answer.revision, answer.text, answer.details)


class DecisionReplay:
    """The decisions of a run, made again.

    Attributes:
        ready: the scheduler, newly made.
    """

    def __init__(self, path: str) -> None:
        """Read the scheduler.

        Raises:
            MillraceError: the file's first line is wrong, or the scheduler cannot be made.
        """
        self._lines = read_decisions(path)
        self._head = cast("Located[SchedulerInFile]", next(self._lines))
        self.ready = self._make()

    def decide(self) -> Iterator[Decision]:
        """Yield the decisions; those that got no answer are left out, and a reset begins with a new scheduler.

        Raises:
            MillraceError: a line is wrong, or the scheduler failed.
            RunError: an answer differs from that of the run; the message names file and line.
        """
        for line in self._lines:
            if isinstance(line.value, ResetInFile):
                self.ready = self._make()
            elif isinstance(line, KeptDecision) and (line.answer is not None or line.value.error):
                decision = _decide(self.ready, line.value.problem, line.value.observation)
                yield decision
                if encode_answer(decision.answer) != line.answer:
                    raise RunError(
                        f"{line.origin.where}: the scheduler's answer to question {line.value.number} differs"
                    )

    def _make(self) -> CheckedOnline:
        head = self._head
        try:
            return head.value.make(head.origin / "params" if head.value.params else None)
        except InputError as fault:
            if str(fault).startswith(head.origin.source):
                raise
            raise (head.origin / "scheduler").error(str(fault)) from None
