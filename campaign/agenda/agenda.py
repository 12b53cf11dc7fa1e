"""The agenda: a file that defines what a campaign runs, where, how often and for how long.

This module reads and validates the file on its own; `campaign.agenda.plan` resolves its names to workloads, schedulers
and placements.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from agents.sensors import GROUP as SENSORS
from analysis.records.descriptions import NO_SAIL, PrimaryMetric, ReportEngine
from analysis.records.interval_metrics import Window
from campaign.agenda.cpu import ByClass, CpuVariant, check_cpu_shape
from campaign.agenda.demands import Demands
from campaign.agenda.gates import GatesEntry
from campaign.agenda.online import OnlineEntry, RevisionEntry
from campaign.agenda.profile import ProfileEntry, check_profile
from campaign.agenda.run_order import Order
from campaign.agenda.search import SearchEntry
from campaign.agenda.timeline import Event
from campaign.agenda.windows import check_windows
from inventory.documents import Document, Located, Origin
from inventory.errors import Faults, InputError, nearest
from inventory.foreign import printable
from inventory.plugins import plugins
from inventory.values import FileName, Positive, Seconds, SomeSeconds
from scheduler.registry import GROUP as SCHEDULERS
from workloads.rates import Constant, Max, Poisson, Rate
from workloads.workload import GROUP as WORKLOADS

BUILTIN = Path(__file__).parents[1] / "agendas"

Repetitions = Annotated[int, Meta(ge=1, le=10_000)]
Count = Annotated[int, Meta(ge=0)]
AtLeastOne = Annotated[int, Meta(ge=1)]
Values = Annotated[tuple[Any, ...], Meta(min_length=1)]
Rule = Annotated[Mapping[str, Any], Meta(min_length=1)]
"""Properties that runs have in common: labels of `workload`, `scheduler` and `cpu`, and values of factors."""

ADAPTIVE: Literal["adaptive"] = "adaptive"
LingerMs = Literal["adaptive"] | Annotated[float, Meta(ge=0, le=60_000)]
"""Milliseconds that rows of an incomplete batch wait for others, or `adaptive`: as long as the load suggests."""

LONGEST_IDLE_S = 3600.0


class IdleEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds that idle machines settle and are metered before and after each run; `measure_s` 0 disables it."""

    settle_s: Annotated[float, Meta(ge=0, le=LONGEST_IDLE_S)] = 10.0
    measure_s: Annotated[float, Meta(ge=0, le=LONGEST_IDLE_S)] = 30.0


class WorkloadEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A workload with its parameters and rate; `label` distinguishes entries of one workload (default: its name).

    `demands` are per component, and replace those of the workload, as does `worker_max_heap_mb`.
    """

    name: str
    label: FileName | None = None
    params: Mapping[str, Any] | None = None
    rate: Rate
    demands: Mapping[str, Demands] = {}
    worker_max_heap_mb: Positive | None = None


class SchedulerEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scheduler with its parameters; `label` distinguishes entries of one scheduler (default: its name).

    It uses only the first `nodes` available nodes of the cluster. With `gates` its runs follow a communication
    schedule; with `online` it revises the running topology.
    """

    name: str
    label: FileName | None = None
    params: Mapping[str, Any] | None = None
    nodes: AtLeastOne | None = None
    gates: GatesEntry | None = None
    online: OnlineEntry | None = None


class OnFailure(Struct, frozen=True, forbid_unknown_fields=True):
    """Number of retries of a failed run, and then: `skip` to the next run, or `stop` and skip all further runs."""

    retry: Count = 0
    then: Literal["skip", "stop"] = "skip"


class ReportEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the report.

    Attributes:
        aa: folder of an A/A campaign on the same cluster.
        engine: what runs the report's job.
        primary: metrics that order schedulers, and in which they are compared first.
    """

    aa: str | None = None
    engine: ReportEngine = "spark"
    primary: Annotated[tuple[PrimaryMetric, ...], Meta(min_length=1)] = ("throughput_tuples_per_s", "latency_ms.p95")


AUTO = "auto"
"""`warmup_s` of runs whose measured interval begins when their transient has ended."""

WARMUP_LIMIT_S = 60.0
"""Default of `warmup_limit_s`."""

DRAIN_INTERVALS, LEAST_DRAIN_S = 3, 30.0
"""Default of `drain_s`: so many times the measured interval, and at least so many seconds."""


class Agenda(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"excluded": "except"}):
    """The agenda file; see docs/reference/agenda.md."""

    name: FileName
    inventory: str = "loopback"
    repetitions: Repetitions = 1
    order: Order = "interleaved"
    seed: Count = 0
    warmup_s: Seconds | Literal["auto"] = 10.0
    warmup_limit_s: SomeSeconds | None = None
    duration_s: SomeSeconds = 60.0
    drain_s: Seconds | None = None
    checkpoint_s: Seconds = 5.0
    fresh_agents: bool = False
    on_failure: OnFailure = OnFailure()
    workloads: Annotated[tuple[WorkloadEntry, ...], Meta(min_length=1)]
    timeline: tuple[Event, ...] = ()
    schedulers: Annotated[tuple[str | SchedulerEntry, ...], Meta(min_length=1)]
    revision: RevisionEntry | None = None
    profile: ProfileEntry | None = None
    baseline: str | None = None
    sensors: tuple[str, ...] = ("cpu", "memory", "network", "power")
    idle: IdleEntry = IdleEntry()
    cpu: ByClass | tuple[CpuVariant, ...] | None = None
    acks: bool = False
    engine: Literal["agents", "storm", "flink"] = "agents"
    engine_options: Mapping[str, bool | int | float | str] = {}
    buffer_mb: Positive | None = None
    linger_ms: LingerMs = ADAPTIVE
    search: SearchEntry | None = None
    report: ReportEntry = ReportEntry()
    windows: tuple[Window, ...] = ()
    factors: Mapping[str, Values] = {}
    combine: Literal["product", "zip"] = "product"
    only: tuple[Rule, ...] = ()
    excluded: tuple[Rule, ...] = ()
    unplaceable: Literal["refuse", "skip"] = "refuse"

    @property
    def longest_warmup_s(self) -> float:
        """Seconds from the start of the sources after which the measured interval begins at the latest."""
        limit_s = WARMUP_LIMIT_S if self.warmup_limit_s is None else self.warmup_limit_s
        return limit_s if isinstance(self.warmup_s, str) else self.warmup_s

    @property
    def warmup_in_words(self) -> str:
        """Length of the warm-up, or its limit."""
        limit = "at most " if self.warmup_s == AUTO else ""
        return f"{limit}{self.longest_warmup_s:g} s of warm-up"

    @property
    def longest_drain_s(self) -> float:
        """Seconds within which a topology must drain after its sources have stopped."""
        return max(DRAIN_INTERVALS * self.duration_s, LEAST_DRAIN_S) if self.drain_s is None else self.drain_s

    @property
    def labels(self) -> list[str]:
        """The workloads' labels, as listed."""
        return [entry.label or entry.name for entry in self.workloads]

    @property
    def scheduler_labels(self) -> list[str]:
        """The schedulers' labels, as listed."""
        return [entry if isinstance(entry, str) else entry.label or entry.name for entry in self.schedulers]

    @property
    def scheduler_named(self) -> dict[str, str]:
        """Label -> name of each scheduler."""
        names = [entry if isinstance(entry, str) else entry.name for entry in self.schedulers]
        return dict(zip(self.scheduler_labels, names, strict=True))

    @property
    def cpu_labels(self) -> list[str]:
        """The labels of CPU settings, as listed; one empty label without variants."""
        return [variant.label for variant in self.cpu] if isinstance(self.cpu, tuple) else [""]


AGAIN = "-again"
"""End of the second label of a scheduler in an A/A campaign."""

FEWEST_AA = 20
"""Fewest repetitions of an A/A campaign."""


def with_second_labels(document: Document) -> Document:
    """Return the agenda of an A/A campaign: interleaved, with each scheduler under a second label.

    Raises:
        InputError: it is invalid, has too few repetitions, or an event is meant for one of the schedulers.
    """
    agenda, origin = agenda_of(document).value, document.origin
    if agenda.repetitions < FEWEST_AA:
        raise (origin / "repetitions").error(f"{agenda.repetitions} are too few for --aa; expected {FEWEST_AA} or more")
    for at, event in enumerate(agenda.timeline):
        if getattr(event, "scheduler", None) is not None:
            raise (origin / "timeline" / at / "scheduler").error(
                "events of a single scheduler are not possible with --aa, which runs every scheduler under two labels"
            )
    first = document.data["schedulers"]
    second = [
        {**({"name": entry} if isinstance(entry, str) else entry), "label": label + AGAIN}
        for entry, label in zip(first, agenda.scheduler_labels, strict=True)
    ]
    lines = dict(document.lines)
    for steps, line in document.lines.items():
        match steps:
            case ("schedulers", int(at), *rest):
                lines["schedulers", at + len(first), *rest] = line
    data = {**document.data, "order": "interleaved", "schedulers": [*first, *second]}
    return Document(document.source, data, lines)


def second_labels(agenda: Agenda) -> list[tuple[str, str]]:
    """Return both labels of each scheduler of an A/A campaign; nothing if it is another campaign."""
    labels = agenda.scheduler_labels
    pairs = [(label, label + AGAIN) for label in labels if label + AGAIN in labels]
    return pairs if 2 * len(pairs) == len(labels) else []


def builtin_agendas() -> dict[str, Path]:
    """Return name -> file of the built-in agendas, such as `demo` and `papers/pmod/small/growth`.

    Their inventories lie beside them, and end in `.yml`.
    """
    return {path.relative_to(BUILTIN).with_suffix("").as_posix(): path for path in sorted(BUILTIN.rglob("*.yaml"))}


def find_agenda(name_or_path: str) -> Path:
    """Return the file that `name_or_path` refers to; an existing file takes precedence over a built-in agenda.

    Raises:
        InputError: there is neither.
    """
    path = Path(name_or_path)
    if path.is_file():
        return path
    builtin = builtin_agendas()
    if name_or_path in builtin:
        return builtin[name_or_path]
    if path.exists():
        raise InputError(f"{printable(path)}: is not a file; expected an agenda file or the name of an agenda")
    hint = nearest(name_or_path, builtin)
    raise InputError(f"{printable(name_or_path)}: there is no such file, and no agenda of that name{hint}")


def agenda_of(document: Document) -> Located[Agenda]:
    """Convert a document to an `Agenda`; check that all names in it are installed.

    Raises:
        InputError: the document is invalid; the message names file, line, key, value and the nearest valid choice of
            every fault.
    """
    origin = document.origin
    check_cpu_shape(origin)
    agenda = document.convert(Agenda)
    faults = Faults()
    _check_names(origin, agenda, faults)
    with faults.gathered():
        if agenda.report.engine == "sail":
            raise (origin / "report" / "engine").error(NO_SAIL)
    _check_warmup(origin, agenda, faults)
    with faults.gathered():
        check_windows(origin / "windows", agenda.windows, agenda.duration_s)
    with faults.gathered():
        check_profile(origin / "profile", agenda.profile, agenda.scheduler_labels)
    with faults.gathered():
        if agenda.baseline is not None and agenda.baseline not in agenda.scheduler_labels:
            hint = nearest(agenda.baseline, agenda.scheduler_labels)
            raise (origin / "baseline").error(f"{agenda.baseline!r} is none of the agenda's schedulers{hint}")
    faults.check()
    return Located(replace(agenda, baseline=agenda.baseline or agenda.scheduler_labels[0]), origin)


STEADY = (Constant, Poisson, Max)
"""Rates that do not change on purpose."""


def _check_warmup(origin: Origin, agenda: Agenda, faults: Faults) -> None:
    """Check that a warm-up that ends with the transient is one of runs in which nothing changes on purpose."""
    if agenda.warmup_s != AUTO:
        with faults.gathered():
            if agenda.warmup_limit_s is not None:
                raise (origin / "warmup_limit_s").error(
                    f"is the limit of warmup_s: auto, and warmup_s is {agenda.warmup_s:g}"
                )
        return
    why = "changes runs on purpose, so that the end of their transient is not known; give warmup_s in seconds"
    for at, workload in enumerate(agenda.workloads):
        with faults.gathered():
            if not isinstance(workload.rate, STEADY):
                raise (origin / "workloads" / at / "rate").error(f"{why}, or take a constant rate, poisson or max")
    for at, scheduler in enumerate(agenda.schedulers):
        with faults.gathered():
            if isinstance(scheduler, SchedulerEntry) and scheduler.online is not None:
                raise (origin / "schedulers" / at / "online").error(why)
    with faults.gathered():
        if agenda.timeline:
            raise (origin / "timeline").error(why)
    with faults.gathered():
        if agenda.engine != "agents":
            raise (origin / "warmup_s").error(
                f"{AUTO!r} is not possible with engine: {agenda.engine}, which gets all times of a run before its start"
            )


def _check_names(origin: Origin, agenda: Agenda, faults: Faults) -> None:
    for at, workload in enumerate(agenda.workloads):
        here = origin / "workloads" / at
        with faults.gathered():
            _check_known(here / "name", "workload", workload.name, WORKLOADS)
            if agenda.labels.index(workload.label or workload.name) != at:
                raise here.error(f"a second workload is called {agenda.labels[at]!r}; give each one a 'label'")
    for at, (entry, label) in enumerate(zip(agenda.schedulers, agenda.scheduler_labels, strict=True)):
        here = origin / "schedulers" / at
        with faults.gathered():
            if isinstance(entry, str):
                _check_known(here, "scheduler", entry, SCHEDULERS)
            else:
                _check_known(here / "name", "scheduler", entry.name, SCHEDULERS)
            if agenda.scheduler_labels.index(label) != at:
                raise here.error(f"the scheduler {label!r} is listed twice; give each one a 'label' of its own")
    for at, label in enumerate(agenda.cpu_labels):
        with faults.gathered():
            if agenda.cpu_labels.index(label) != at:
                raise (origin / "cpu" / at / "label").error(f"second CPU settings are called {label!r}")
    for at, sensor in enumerate(agenda.sensors):
        here = origin / "sensors" / at
        with faults.gathered():
            _check_known(here, "sensor", sensor, SENSORS)
            if agenda.sensors.index(sensor) != at:
                raise here.error(f"the sensor {sensor!r} is listed twice")


def _check_known(origin: Origin, kind: str, name: str, group: str) -> None:
    if name not in plugins(group):
        raise origin.error(f"unknown {kind} {name!r}{nearest(name, plugins(group))}")
