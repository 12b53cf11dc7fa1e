"""`OnlineScheduler`: its rhythm, with the averages of a window's samples, and its answer, `Revision`, also in files.

What a revision does not name stays as it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from msgspec import Struct

from scheduler.online.observation import Expected, Observation
from scheduler.problem import CommunicationSchedule, Move, Problem, Scheduler, Slot
from workloads.topology import Executor

Reason = Literal["overload", "cut", "infeasible", "nodes", "scale", "clocks", "schedule"]

Average = Literal["mean", "trimmed", "ewma"]
"""Average of the samples of a window: all; all but one largest and one smallest; or exponentially weighted."""


@dataclass(frozen=True)
class Rhythm:
    """Windows of a scheduler, and the times at which it is asked.

    Attributes:
        window_s: length of a window; of `ewma`, the time between two samples.
        sample_s: time between two samples.
        average: how a window's samples become one value.
        newest: weight of the newest sample of `ewma`.
        first_s: when it is asked first, in seconds since the sources started; None = only at changes.
        ask_s: time between two questions.
    """

    window_s: float = 60.0
    sample_s: float = 1.0
    average: Average = "mean"
    newest: float = 0.5
    first_s: float | None = None
    ask_s: float | None = None


@dataclass(frozen=True)
class Revision:
    """Changes of a running topology.

    Attributes:
        reason: why; empty for a revision that changes nothing.
        text: the same in a sentence.
        moves: executors that change their slot.
        parallelism: component -> new number of executors, 1..1024, for components that can be scaled.
        added: executor that is added -> slot; every executor that `parallelism` adds has one.
        frequencies: node -> CPU clock in Hz; None = the agenda's clock.
        schedule: new communication schedule.
        wave: most executors that move at one barrier; 0 = all.
        expects: what is predicted for the time after.
        details: values of triggers beside their thresholds and whatever else explains the decision; JSON types only.
    """

    reason: Reason | Literal[""] = ""
    text: str = ""
    moves: Sequence[Move] = ()
    parallelism: Mapping[str, int] = field(default_factory=dict)
    added: Mapping[Executor, Slot] = field(default_factory=dict)
    frequencies: Mapping[str, int | None] = field(default_factory=dict)
    schedule: CommunicationSchedule | None = None
    wave: int = 0
    expects: Expected = field(default_factory=Expected)
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def changes(self) -> bool:
        """True if it changes anything."""
        return bool(self.moves or self.parallelism or self.added or self.frequencies or self.schedule is not None)


@runtime_checkable
class OnlineScheduler(Scheduler, Protocol):
    """A scheduler that revises a running topology.

    An instance lives for one run and may remember; it depends on its parameters and the observations so far only.
    """

    rhythm: ClassVar[Rhythm]

    def revise(self, problem: Problem, observation: Observation) -> Revision | None:
        """Return what to change, or None.

        Args:
            problem: the topology with the parallelism that is wanted, what runs (`existing`), the nodes that are
                available, and the observed traffic.
            observation: the last window.
        """
        ...


class MoveInFile(Struct, frozen=True, forbid_unknown_fields=True, rename={"source": "from", "target": "to"}):
    """A move in a file."""

    topology: str
    executor: str
    source: Slot
    target: Slot


class RevisionInFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A revision in a file, without its account; see docs/reference/files.md."""

    reason: str
    moves: tuple[MoveInFile, ...]
    parallelism: dict[str, int]
    added: dict[str, Slot]
    frequencies_hz: dict[str, int | None]
    schedule: CommunicationSchedule | None
    wave: int
    expects: Expected


class AnswerInFile(Struct, frozen=True, forbid_unknown_fields=True):
    """An answer in a file.

    Attributes:
        revision: None if nothing is to be done.
        text: why, in a sentence.
        details: why, in the scheduler's own account.
    """

    revision: RevisionInFile | None
    text: str = ""
    details: dict[str, Any] = {}


def in_file(revision: Revision | None, topology: str) -> AnswerInFile:
    """Return the form of a checked answer in files; `topology` names the one that runs."""
    if revision is None:
        return AnswerInFile(None)
    written = RevisionInFile(
        reason=revision.reason,
        moves=tuple(MoveInFile(topology, m.executor.name, m.source, m.target) for m in revision.moves),
        parallelism=dict(revision.parallelism),
        added={executor.name: slot for executor, slot in revision.added.items()},
        frequencies_hz=dict(revision.frequencies),
        schedule=revision.schedule,
        wave=revision.wave,
        expects=revision.expects,
    )
    return AnswerInFile(written if revision.changes else None, revision.text, dict(revision.details))


def revision_of(answer: AnswerInFile) -> Revision | None:
    """Return the answer from its form in files; None if the scheduler has nothing to say.

    Raises:
        ValueError: a name is not that of an executor.
    """
    written = answer.revision
    if written is None:
        said = answer.text or answer.details
        return Revision(text=answer.text, details=answer.details) if said else None
    return Revision(
        reason=written.reason,  # type: ignore[arg-type]  # checked before it was written
        text=answer.text,
        moves=tuple(Move(m.topology, Executor.named(m.executor), m.source, m.target) for m in written.moves),
        parallelism=written.parallelism,
        added={Executor.named(name): slot for name, slot in written.added.items()},
        frequencies=written.frequencies_hz,
        schedule=written.schedule,
        wave=written.wave,
        expects=written.expects,
        details=answer.details,
    )


def average(samples: Sequence[tuple[float, int]], kind: Average, newest: float = 0.5) -> float:
    """Return the average of a window's samples, oldest first.

    Args:
        samples: (value, times): a value that stands for several equal samples, because reports in between were lost,
            counts as often.
        kind: `mean`; `trimmed`: without one largest and one smallest, from three samples on (Er-Stream, Eq. 2 as
            corrected); `ewma`: the newest sample counts `newest`, the average before it the rest.
        newest: weight of the newest sample.

    Raises:
        ValueError: there are no samples.
    """
    number = sum(times for _, times in samples)
    if not number:
        raise ValueError("an average of no samples")
    if kind == "ewma":
        averaged = samples[0][0]
        for value, times in samples:
            kept = (1 - newest) ** times
            averaged = kept * averaged + (1 - kept) * value
        return averaged
    total = fsum(value * times for value, times in samples)
    if kind == "trimmed" and number > 2:
        values = [value for value, times in samples if times]
        return (total - max(values) - min(values)) / (number - 2)
    return total / number
