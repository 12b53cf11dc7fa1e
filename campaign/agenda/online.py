"""Online runs of an agenda: schedulers that watch and revise a running topology, and how revisions are carried out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct

from controller.coordinator.rescheduling import RevisionSettings
from controller.coordinator.scripted_events import MoveExecutors, ScriptedEvent
from inventory.documents import Located, Origin, to_plain
from inventory.errors import InputError
from inventory.values import Seconds, SomeSeconds
from scheduler.online.replanner import Replan
from scheduler.online.revision import Rhythm
from scheduler.online.validation import rhythm_of
from scheduler.registry import Checked, make_scheduler

Count = Annotated[int, Meta(ge=0)]
Weight = Annotated[float, Meta(gt=0, le=1)]

How = Literal["live", "restart", "shadow"]
"""Ways to carry out a revision: while the topology runs, by a restart of it, or not at all."""

Processes = Literal["kept", "new"]
"""Processes of the workers after a restart."""

SENSOR = "cpu"
"""Sensor without which no load of a node is known."""

LEAST_TRIMMED = 3
"""Minimum number of samples of which one largest and one smallest are left out."""

FIRST_INITIAL = "even"
"""Scheduler that places a topology at the start, for a scheduler that needs observed traffic."""

REPORT_S = 1.0
"""Time between two reports of a worker."""


class MostMoves(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Maximum number of moves in a run, and away from or to a node in one revision; 0 = no limit."""

    run: Count | None = None
    node: Count | None = None


class RevisionEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Rules for revisions; omitted keys have the values of `RevisionRules`, or of the agenda's `revision`."""

    how: How | None = None
    processes: Processes | None = None
    wait_s: Seconds | None = None
    cost_window_s: SomeSeconds | None = None
    settle_s: Seconds | None = None
    deadline_s: SomeSeconds | None = None
    stale_windows: Annotated[int, Meta(ge=1)] | None = None
    most_moves: MostMoves | None = None
    wave: Count | None = None
    cooldown_s: Seconds | None = None


class OnlineEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Runs of a scheduler are online; omitted keys of windows have the values of the scheduler.

    `average` is a kind of average, or the weight of the newest sample of an exponentially weighted one.
    """

    window_s: SomeSeconds | None = None
    sample_s: SomeSeconds | None = None
    average: Literal["mean", "trimmed"] | Weight | None = None
    first_s: Seconds | None = None
    ask_s: SomeSeconds | None = None
    replan: Replan | None = None
    revision: RevisionEntry | None = None


@dataclass(frozen=True)
class RevisionRules(RevisionSettings):
    """Rules for the revisions of a run, with those of restarts and costs.

    Attributes:
        processes: whether a restart keeps the workers' processes.
        wait_s: seconds between the halt of the sources and a restart.
        cost_window_s: seconds before and after a revision that are compared.
    """

    processes: Processes = "kept"
    wait_s: float = 0.0
    cost_window_s: float = 20.0

    def changed_by(self, entry: RevisionEntry | None) -> "RevisionRules":
        """Return the rules with what `entry` gives."""
        given = to_plain(entry) if entry is not None else {}
        most = given.pop("most_moves", {})
        return replace(self, **given, **{f"most_moves_{key}": value for key, value in most.items()})


class Questions(NamedTuple):
    """Times at which an online scheduler is asked, besides at changes, in seconds since the sources started.

    Attributes:
        first_s: the first time, when the first window is full.
        every_s: time between two questions.
        times: how often, if no window begins anew because of a change.
    """

    first_s: float
    every_s: float
    times: int


@dataclass(frozen=True)
class OnlineRun:
    """Everything that makes the runs of a scheduler online.

    Attributes:
        scheduler: its name, which is not the label.
        params: its parameters.
        rhythm: its windows, and when it is asked.
        replan: when a new placement is applied; None for a scheduler that revises by itself.
        revision: how revisions are carried out.
    """

    scheduler: str
    params: Mapping[str, Any]
    rhythm: Rhythm
    replan: Replan | None
    revision: RevisionRules

    @property
    def ready_s(self) -> float:
        """Time at which the first window is full: it begins with a report after `settle_s`."""
        return self.revision.settle_s + REPORT_S + self.rhythm.window_s

    def questions(self, ends_s: float) -> Questions | None:
        """Return when it is asked in a run whose sources stop at `ends_s`; None if it is asked at changes only."""
        own_s, every_s = self.rhythm.first_s, self.rhythm.ask_s
        if own_s is None or every_s is None:
            return None
        first_s = max(own_s, self.ready_s)
        left_s = self.last_begin_s(ends_s) - first_s
        return Questions(first_s, every_s, max(0, ceil(left_s / every_s)))

    def last_begin_s(self, ends_s: float) -> float:
        """Return the time from which on nothing begins, in a run whose sources stop at `ends_s`."""
        return ends_s - self.revision.settle_s


def check_asked(
    online: OnlineRun, located: Located[OnlineEntry], ends_s: float, events: Sequence[ScriptedEvent]
) -> None:
    """Check that the scheduler of an online run is asked at all.

    Args:
        online: the run.
        located: `online` of the scheduler's entry.
        ends_s: planned end of the sources, in seconds since their start.
        events: events of the run besides changes of rates; the scheduler is asked after each that is no move.

    Raises:
        InputError: it never is.
    """
    entry, origin = located.value, located.origin
    questions, last_s = online.questions(ends_s), online.last_begin_s(ends_s)
    asking = [event for event in events if not isinstance(event, MoveExecutors)]
    if (questions is not None and questions.times) or any(event.at_s < last_s for event in asking):
        return
    never = f"the scheduler {online.scheduler!r} would never be asked:"
    if questions is None:
        raise origin.error(
            f"{never} it is asked at changes only, and the timeline has none for it; give first_s and ask_s, or an "
            "event of the timeline, or leave 'online' out"
        )
    too_late = {"window_s": online.ready_s >= last_s, "first_s": (online.rhythm.first_s or 0.0) >= last_s}
    keys = [key for key, is_late in too_late.items() if is_late]
    given = [key for key in keys if getattr(entry, key) is not None]
    here = origin / given[0] if given else origin
    if entry.replan is not None and not given:
        keys, here = ["replan.every_s"], origin / "replan" / "every_s"
    raise here.error(
        f"{never} the first time is {questions.first_s:g} s, and nothing begins in the last "
        f"{online.revision.settle_s:g} s of a run of {ends_s:g} s (warmup_s + duration_s); make {' and '.join(keys)} "
        "shorter, or the run longer"
    )


def online_run(
    located: Located[OnlineEntry],
    scheduler: Checked,
    revision: RevisionEntry | None,
    sensors: Sequence[str],
    scheduled: bool,
) -> OnlineRun:
    """Return what makes the runs of a scheduler online.

    Args:
        located: `online` of its entry.
        scheduler: the scheduler.
        revision: the agenda's `revision`.
        sensors: the agenda's sensors.
        scheduled: whether its runs follow a communication schedule of the agenda, which does not change.

    Raises:
        InputError: the scheduler cannot revise, the sensor `cpu` is missing, or keys contradict each other.
    """
    entry, origin = located.value, located.origin
    if SENSOR not in sensors:
        raise origin.error(f"needs the sensor {SENSOR!r}: without it, no load of a node is known")
    replan = None
    rhythm = rhythm_of(scheduler)
    if entry.replan is not None:
        if scheduled:
            raise (origin / "replan").error(
                "a new placement needs a new communication schedule, but 'gates' has the schedule of all placements; "
                "leave 'replan' out, or 'schedule' for those of the scheduler"
            )
        replan = entry.replan
        rhythm = replan.rhythm(entry.sample_s or Rhythm.sample_s)
    if rhythm is None:
        raise origin.error(
            f"the scheduler {scheduler.name!r} does not revise running topologies; "
            "to place again periodically, add replan: {every_s: 60}"
        )
    rules = RevisionRules().changed_by(revision).changed_by(entry.revision)
    return OnlineRun(scheduler.name, scheduler.params, _rhythm(entry, origin, rhythm), replan, rules)


def starting_scheduler(scheduler: Checked, origin: Origin) -> Checked:
    """Return the scheduler of the placement with which online runs of `scheduler` start: its parameter `initial`.

    Without that parameter it is the scheduler itself, or `even` if the scheduler needs observed traffic.

    Raises:
        InputError: there is no such scheduler, or it needs observed traffic.
    """
    own = FIRST_INITIAL if scheduler.needs.traffic == "required" else scheduler.name
    name = scheduler.params.get("initial", own)
    here = origin / "params" / "initial"
    try:
        made = scheduler if name == scheduler.name else make_scheduler(name)
    except InputError as fault:
        raise here.error(str(fault)) from None
    if made.needs.traffic == "required":
        raise here.error(f"the scheduler {name!r} needs observed traffic, which is not there at the start")
    return made


def _rhythm(entry: OnlineEntry, origin: Origin, own: Rhythm) -> Rhythm:
    """Return the rhythm of a scheduler with the keys of the agenda."""
    first_s = own.first_s if entry.first_s is None else entry.first_s
    ask_s = own.ask_s if entry.ask_s is None else entry.ask_s
    if (first_s is None) != (ask_s is None):
        given = "first_s" if ask_s is None else "ask_s"
        raise (origin / given).error("the scheduler is asked at changes only; give 'first_s' and 'ask_s', or neither")
    if isinstance(entry.average, float) or (entry.average is None and own.average == "ewma"):
        if entry.window_s is not None and entry.sample_s not in (None, entry.window_s):
            raise (origin / "window_s").error(
                f"got {entry.window_s:g}, but sample_s is {entry.sample_s:g}: they are the same for a weighted average"
            )
        apart_s = entry.window_s or entry.sample_s or own.sample_s
        newest = entry.average if isinstance(entry.average, float) else own.newest
        return Rhythm(apart_s, apart_s, "ewma", newest, first_s, ask_s)
    average = entry.average or own.average
    window_s, sample_s = entry.window_s or own.window_s, entry.sample_s or own.sample_s
    samples = round(window_s / sample_s)
    if samples < 1 or abs(samples * sample_s - window_s) > 1e-6 * sample_s:
        given = "window_s" if entry.window_s is not None else "sample_s"
        raise (origin / given).error(f"a window of {window_s:g} s has no whole number of samples of {sample_s:g} s")
    if average == "trimmed" and samples < LEAST_TRIMMED:
        given = next(key for key in ("average", "window_s", "sample_s") if getattr(entry, key) is not None)
        raise (origin / given).error(
            f"the average 'trimmed' needs at least {LEAST_TRIMMED} samples, "
            f"but a window of {window_s:g} s has {samples} of {sample_s:g} s"
        )
    return Rhythm(window_s, sample_s, average, own.newest, first_s, ask_s)
