"""The agenda: a file that defines what a campaign runs, where, how often and for how long.

This module reads and validates the file on its own; `campaign.agenda.plan` resolves its names to workloads, schedulers
and placements.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from agents.sensors.base import GROUP as SENSORS
from campaign.agenda.cpu_settings import ByClass, CpuEntry
from campaign.agenda.gates import GatesEntry
from campaign.agenda.run_order import Order
from campaign.agenda.timeline import Event
from inventory.documents import Document
from inventory.errors import InputError, nearest
from inventory.foreign import printable
from inventory.plugins import plugins
from scheduler.registry import GROUP as SCHEDULERS
from workloads.rates import Rate
from workloads.registry import GROUP as WORKLOADS

BUILTIN = Path(__file__).parents[1] / "agendas"

YEAR_S = 366 * 24 * 3600

Repetitions = Annotated[int, Meta(ge=1, le=10_000)]
Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0, le=YEAR_S)]
SomeSeconds = Annotated[float, Meta(gt=0, le=YEAR_S)]
FileName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}\Z",
        description="at most 100 letters, digits and . _ + - with a letter or a digit first",
    ),
]
"""Text that is used in file names."""


LONGEST_IDLE_S = 3600.0


class IdleEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds that idle machines settle and are metered before and after each run; `measure_s` 0 disables it."""

    settle_s: Annotated[float, Meta(ge=0, le=LONGEST_IDLE_S)] = 10.0
    measure_s: Annotated[float, Meta(ge=0, le=LONGEST_IDLE_S)] = 30.0


class WorkloadEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A workload with its parameters and rate; `label` distinguishes entries of one workload (default: its name)."""

    name: str
    label: FileName | None = None
    params: Mapping[str, Any] | None = None
    rate: Rate


class SchedulerEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """A scheduler with its parameters; with `gates` its runs follow a communication schedule."""

    name: str
    params: Mapping[str, Any] | None = None
    gates: GatesEntry | None = None


class CpuVariant(Struct, frozen=True, forbid_unknown_fields=True):
    """Labelled CPU settings; every workload runs under every scheduler with each of them."""

    label: FileName
    nodes: ByClass


class OnFailure(Struct, frozen=True, forbid_unknown_fields=True):
    """Number of retries of a failed run, and then: `skip` to the next run, or `stop` and skip all further runs."""

    retry: Count = 0
    then: Literal["skip", "stop"] = "skip"


class Agenda(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agenda file; see docs/reference/agenda.md."""

    name: FileName
    inventory: str = "loopback"
    repetitions: Repetitions = 1
    order: Order = "interleaved"
    seed: Count = 0
    warmup_s: Seconds = 10.0
    duration_s: SomeSeconds = 60.0
    checkpoint_s: Seconds = 5.0
    on_failure: OnFailure = OnFailure()
    workloads: Annotated[tuple[WorkloadEntry, ...], Meta(min_length=1)]
    timeline: tuple[Event, ...] = ()
    schedulers: Annotated[tuple[str | SchedulerEntry, ...], Meta(min_length=1)]
    baseline: str | None = None
    sensors: tuple[str, ...] = ("cpu", "memory", "network", "power")
    idle: IdleEntry = IdleEntry()
    cpu: ByClass | tuple[CpuVariant, ...] | None = None

    @property
    def labels(self) -> list[str]:
        """The workloads' labels, as listed."""
        return [entry.label or entry.name for entry in self.workloads]

    @property
    def scheduler_names(self) -> list[str]:
        """The schedulers' names, as listed."""
        return [entry if isinstance(entry, str) else entry.name for entry in self.schedulers]

    @property
    def cpu_labels(self) -> list[str]:
        """The labels of CPU settings, as listed; one empty label without variants."""
        return [variant.label for variant in self.cpu] if isinstance(self.cpu, tuple) else [""]

    @property
    def gates(self) -> dict[str, GatesEntry]:
        """Return scheduler's name -> its `gates`, for schedulers with `gates`."""
        entries = [entry for entry in self.schedulers if isinstance(entry, SchedulerEntry)]
        return {entry.name: entry.gates for entry in entries if entry.gates is not None}


def builtin_agendas() -> dict[str, Path]:
    """Return name -> file of the built-in agendas."""
    return {path.stem: path for path in sorted(BUILTIN.glob("*.yaml"))}


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


def agenda_of(document: Document) -> Agenda:
    """Convert a document to an `Agenda`; check that all names in it are installed.

    Raises:
        InputError: the document is invalid; the message names file, line, key, value and the nearest valid choice.
    """
    _check_cpu_shape(document)
    agenda = document.convert(Agenda)
    _check_names(document, agenda)
    if agenda.baseline is not None and agenda.baseline not in agenda.scheduler_names:
        hint = nearest(agenda.baseline, agenda.scheduler_names)
        raise document.error(("baseline",), f"{agenda.baseline!r} is none of the agenda's schedulers{hint}")
    return replace(agenda, baseline=agenda.baseline or agenda.scheduler_names[0])


def _check_names(document: Document, agenda: Agenda) -> None:
    for at, workload in enumerate(agenda.workloads):
        _check_known(document, ("workloads", at, "name"), "workload", workload.name, WORKLOADS)
        if agenda.labels.index(workload.label or workload.name) != at:
            raise document.error(
                ("workloads", at), f"a second workload is called {agenda.labels[at]!r}; give each one a 'label'"
            )
    for at, entry in enumerate(agenda.schedulers):
        steps: tuple[str | int, ...] = ("schedulers", at)
        if not isinstance(entry, str):
            steps = (*steps, "name")
        _check_known(document, steps, "scheduler", agenda.scheduler_names[at], SCHEDULERS)
        if agenda.scheduler_names.index(agenda.scheduler_names[at]) != at:
            raise document.error(steps, f"the scheduler {agenda.scheduler_names[at]!r} is listed twice")
    for at, label in enumerate(agenda.cpu_labels):
        if agenda.cpu_labels.index(label) != at:
            raise document.error(("cpu", at, "label"), f"second CPU settings are called {label!r}")
    for at, sensor in enumerate(agenda.sensors):
        _check_known(document, ("sensors", at), "sensor", sensor, SENSORS)
        if agenda.sensors.index(sensor) != at:
            raise document.error(("sensors", at), f"the sensor {sensor!r} is listed twice")


def _check_cpu_shape(document: Document) -> None:
    """Check `cpu` against the form that its type indicates, so that errors refer to that form.

    Settings without a class of nodes would otherwise be read as classes without settings.
    """
    entry = document.data.get("cpu") if isinstance(document.data, dict) else None
    for key in entry if isinstance(entry, dict) else ():
        if key in CpuEntry.__struct_fields__:
            raise document.error(("cpu", key), f"{key!r} stands below a class of nodes, or '*': cpu: {{'*': {{...}}}}")
    if entry == []:
        raise document.error(("cpu",), "lists nothing; leave it out, or give settings with a 'label'")
    if isinstance(entry, dict):
        document.convert(dict[str, CpuEntry], ("cpu",))
    elif isinstance(entry, list):
        document.convert(tuple[CpuVariant, ...], ("cpu",))


def _check_known(document: Document, steps: tuple[str | int, ...], kind: str, name: str, group: str) -> None:
    if name not in plugins(group):
        raise document.error(steps, f"unknown {kind} {name!r}{nearest(name, plugins(group))}")
