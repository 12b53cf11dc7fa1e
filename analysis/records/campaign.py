"""A campaign's folder as the report reads it: the agenda, and the outcome of every run.

A run counts when it is `ok`, its answer is not wrong, its traces are complete and everything happened that its timeline
asks for; every other run is listed with the reason why it does not count.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet
from msgspec import UNSET, Struct

from agents.collected_traces import LATER_COLUMNS, TABLES
from analysis.records.accounts import Energy, RevisionCost, RunMeans
from analysis.records.descriptions import why_unreadable
from analysis.records.factors import Factors, factors_text, value_text
from analysis.records.file_types import CAMPAIGN_FILE, RUN_FILE, CampaignRecord, RevisionRecord, RunRecord, Times
from inventory.errors import InputError, nearest
from inventory.foreign import printable, printable_all
from scheduler.explain.worker_loads import count_text

T = TypeVar("T")

CUT_OFF = "cut off"
"""Status of a run without a result."""
UNMARKED = "recoveries, whose replays are in its figures"
"""Reason for suspecting a run with recoveries that was measured by an earlier version."""


BUFFER_MB = 32.0
"""Buffer of an executor of which occupancy is given in per cent: that of the papers on pipelined scheduling."""

BALANCE_S = 5
"""Seconds over which the parts per node are counted."""


class ResolvedAgenda(Struct, frozen=True):
    """The resolved agenda; workloads, schedulers and rates as plain data."""

    name: str = ""
    repetitions: int | None = None
    order: str | None = None
    seed: int | None = None
    warmup_s: float | str | None = None
    duration_s: float | None = None
    workloads: Sequence[Mapping[str, Any]] = ()
    schedulers: Sequence[str | Mapping[str, Any]] = ()
    cpu: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
    timeline: Sequence[Mapping[str, Any]] = ()
    baseline: str | None = None
    acks: bool = False
    buffer_mb: float | None = None
    factors: Mapping[str, Sequence[Any]] = {}
    report: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Run:
    """One run: its folder, its `run.json` (None when there is none), and rows and bytes per trace table."""

    id: str
    folder: Path
    file: RunRecord | None
    sizes: Mapping[str, tuple[int, int]]
    fault: str = ""

    @property
    def workload(self) -> str:
        """Label of its workload, followed by that of its CPU settings if the agenda has several, and by its factors."""
        if self.file is None:
            return ""
        return _cell(self.file.label or self.file.workload, self.file.cpu_settings, self.file.factors)

    @property
    def scheduler(self) -> str:
        """The scheduler's name."""
        return self.file.scheduler if self.file else ""

    @property
    def repetition(self) -> int | None:
        """The repetition's number."""
        return self.file.repetition if self.file else None

    @property
    def status(self) -> str:
        """`ok`, `incomplete`, `failed`, `skipped` or `cut off`."""
        return self.file.status if self.file else CUT_OFF

    @property
    def reason(self) -> str:
        """Reason why it has no figures; empty when it has."""
        if self.file is None or self.file.status != "ok":
            return self.fault or (self.file.reason if self.file else "") or "no reason was recorded"
        if self.file.verification.status == "failed":
            return f"wrong answer: {self.file.verification.message or 'it differs from the reference'}"
        return self.fault

    @property
    def off_script(self) -> str:
        """Events of its timeline that did not happen, or not in time; empty if all did."""
        return "; ".join(event.doubt for event in self.file.timeline if event.doubt) if self.file else ""

    @property
    def left_out(self) -> str:
        """Reason why its figures are not part of the comparison; empty when they are."""
        return self.reason or self.off_script

    @property
    def counts(self) -> bool:
        """True if its figures are part of the comparison."""
        return not self.left_out

    @property
    def times(self) -> Times:
        """Its times; all None without `run.json`."""
        return self.file.times if self.file else Times()

    @property
    def latency_bound_ms(self) -> float | None:
        """Error of its latencies because clocks of nodes differ; 0: one shared clock; None: unknown."""
        measured = self.file.measured if self.file else None
        return measured.latency_ms.bound if measured else None

    @property
    def energy(self) -> Energy | None:
        """Energy of its measured interval; None when it was not measured."""
        return self.file.measured.energy if self.file and self.file.measured else None

    @property
    def revisions(self) -> Sequence[RevisionRecord]:
        """Decisions of its online scheduler, also if it failed."""
        if self.file is None:
            return ()
        return self.file.measured.revisions if self.file.measured else self.file.revisions

    @property
    def revision_costs(self) -> Sequence[RevisionCost]:
        """Costs of the changes of its running topology, in order of time."""
        return self.file.measured.revision_costs if self.file and self.file.measured else ()

    @property
    def means(self) -> RunMeans:
        """Means over the whole run and after the last change."""
        return self.file.measured.means if self.file and self.file.measured else RunMeans()

    @property
    def recoveries(self) -> int:
        """Number of recoveries."""
        return len(self.file.measured.recoveries) if self.file and self.file.measured else 0

    @property
    def incomplete(self) -> str:
        """Reason why its figures are not comparable with a run without recoveries; empty when they are."""
        known = self.file.measured.incomplete if self.file and self.file.measured else None
        if known is UNSET:
            # Earlier versions do not mark such runs.
            return UNMARKED if self.recoveries else ""
        return known or ""

    @property
    def suspect(self) -> str:
        """Reasons to doubt its figures; empty without any."""
        reasons = [*self.file.suspect] if self.file else []
        if self.incomplete == UNMARKED:
            reasons.append(UNMARKED)
        return "; ".join(reasons)

    @property
    def not_given(self) -> str:
        """Inputs that its scheduler would use and did not get; empty when it got everything."""
        return ", ".join(self.file.not_given) if self.file else ""

    @property
    def overloaded(self) -> str:
        """Nodes and workers that its placement overloads, by the loads that were known; empty: not examined."""
        placement = self.file.placement if self.file else None
        cost = placement.get("cost", {}) if isinstance(placement, Mapping) else {}
        if "overloaded_nodes" not in cost:
            return ""
        workers = count_text(cost.get("overloaded_workers"), cost.get("undetermined_workers", 0))
        return f"overloaded nodes {cost['overloaded_nodes']}, workers {workers}"

    @cached_property
    def placed(self) -> dict[str, tuple[str, int]]:
        """Executor -> its first node and slot, in the topology's order."""
        entries = _assignments(self.file.placement if self.file else None)
        return {str(entry["executor"]): (str(entry["node"]), int(entry["slot"])) for entry in entries}

    @cached_property
    def slots(self) -> dict[tuple[str, int], list[str]]:
        """(node, slot) -> executors placed there, by node and slot."""
        by_slot: dict[tuple[str, int], list[str]] = {}
        for executor, place in self.placed.items():
            by_slot.setdefault(place, []).append(executor)
        return dict(sorted(by_slot.items()))


@dataclass(frozen=True)
class Campaign:
    """A campaign's folder."""

    folder: Path
    file: CampaignRecord
    agenda: ResolvedAgenda
    runs: tuple[Run, ...]

    @property
    def name(self) -> str:
        """The agenda's name."""
        return self.agenda.name or self.folder.resolve().parent.name

    @cached_property
    def counted(self) -> tuple[Run, ...]:
        """The runs that are compared."""
        return tuple(run for run in self.runs if run.counts)

    @property
    def rows(self) -> int:
        """Trace rows of the runs that are compared."""
        return sum(rows for run in self.counted for rows, _ in run.sizes.values())

    @cached_property
    def workloads(self) -> tuple[str, ...]:
        """Labels of workloads: in the agenda's order, then those that occur only in runs."""
        labels = [str(w.get("label") or w.get("name")) for w in self.agenda.workloads]
        cpus = [None] if isinstance(self.agenda.cpu, Mapping | None) else [str(c.get("label")) for c in self.agenda.cpu]
        values = {key: [value_text(value) for value in values] for key, values in self.agenda.factors.items()}
        combinations = {factors_text(run.file.factors): run.file.factors for run in self.runs if run.file}
        ordered = sorted(
            combinations.values(), key=lambda factors: [_place(values.get(k, ()), v) for k, v in factors.items()]
        )
        listed = [_cell(label, cpu, factors) for label in labels for cpu in cpus for factors in ordered]
        return _in_order(listed, [run.workload for run in self.runs if run.file])

    @cached_property
    def schedulers(self) -> tuple[str, ...]:
        """Schedulers: in the agenda's order, then those that occur only in runs."""
        listed = [s if isinstance(s, str) else str(s.get("label") or s.get("name")) for s in self.agenda.schedulers]
        return _in_order(listed, [run.scheduler for run in self.runs if run.file])

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """All nodes of the runs, in natural order."""
        return _nodes(self.runs)

    def nodes_of(self, workload: str) -> tuple[str, ...]:
        """Return all nodes of runs with the same values of factors as those of a workload, in natural order."""
        alike = {factors_text(run.file.factors) for run in self.runs if run.file and run.workload == workload}
        return _nodes([run for run in self.runs if run.file and factors_text(run.file.factors) in alike])

    def baseline(self, asked: str | None) -> str | None:
        """Return the scheduler that others are compared with: the requested one, the agenda's, or the first.

        Raises:
            InputError: the campaign has no such scheduler.
        """
        if asked is not None and asked not in self.schedulers:
            raise InputError(f"{self.folder}: no run of the baseline {asked!r}{nearest(asked, self.schedulers)}")
        if asked is None and self.agenda.baseline in self.schedulers:
            asked = self.agenda.baseline
        return asked or next(iter(self.schedulers), None)


def load_campaign(folder: Path) -> Campaign:
    """Read a campaign's folder.

    Raises:
        InputError: it is not a campaign's folder, a version wrote it that is not known, or one of its files is invalid.
    """
    path = folder / CAMPAIGN_FILE
    if not path.is_file():
        hint = f"; did you mean {folder / 'latest'}?" if (folder / "latest" / CAMPAIGN_FILE).is_file() else ""
        raise InputError(f"{folder}: no campaign.json here, so this is not a campaign's folder{hint}")
    file = read_file(path, CampaignRecord, as_it_is=("agenda",))
    unreadable = why_unreadable(file.results_version, file.version)
    if unreadable:
        raise InputError(f"{path}: results_version: {unreadable}")
    try:
        agenda = msgspec.convert(printable_all(file.agenda), ResolvedAgenda)
    except msgspec.ValidationError as fault:
        raise InputError(f"{path}: agenda: {fault}") from None
    folders = sorted(p for p in (folder / "runs").glob("*") if p.is_dir() and not p.name.startswith("."))
    return Campaign(folder, file, agenda, tuple(load_run(each) for each in folders))


def load_run(folder: Path) -> Run:
    """Read the folder of a run.

    Raises:
        InputError: its `run.json` is invalid.
    """
    path = folder / RUN_FILE
    if printable(folder.name) != folder.name:
        return Run(printable(folder.name), folder, None, {}, "its folder's name holds characters that cannot be shown")
    if folder.suffix == ".partial" or not path.is_file():
        return Run(folder.name, folder, None, {}, "it was cut off before it had a result; --resume does it again")
    file = read_file(path, RunRecord)
    _check_placement(path, file.placement)
    if file.status != "ok":
        return Run(folder.name, folder, file, {})
    times = file.times
    if times.source_start_ns is None or times.measure_start_ns is None or times.measure_end_ns is None:
        return Run(folder.name, folder, file, {}, "run.json does not say when the measured interval was")
    if times.measure_end_ns <= times.measure_start_ns:
        return Run(folder.name, folder, file, {}, "the measured interval is empty: the input ended in the warm-up")
    sizes, fault = _trace_sizes(folder / "traces", folder.name)
    return Run(folder.name, folder, file, sizes, fault)


def _trace_sizes(folder: Path, run: str) -> tuple[dict[str, tuple[int, int]], str]:
    """Return rows and bytes per table from the files' footers, and the first fault found.

    Rows of many runs are processed together and distinguished by their column `run`, so it must name this run.
    """
    sizes = {}
    for table, schema in TABLES.items():
        path = folder / f"{table}.parquet"
        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                sizes[table] = (file.metadata.num_rows, path.stat().st_size)
                names = file.schema_arrow.names
                others = _runs_named(file.metadata) - {run}
        except OSError as fault:
            return sizes, f"traces/{path.name} is missing or unreadable: {fault.strerror or fault}"
        except pa.ArrowInvalid:
            return sizes, f"traces/{path.name} is not a whole Parquet file"
        older = [name for name in schema.names if name not in LATER_COLUMNS.get(table, ())]
        if names not in (schema.names, older):
            return sizes, f"traces/{path.name} has the columns {', '.join(names)}: another version wrote it"
        if others:
            return sizes, f"traces/{path.name} holds rows of {', '.join(sorted(others))}"
    return sizes, ""


def _runs_named(file: Any) -> set[str]:
    """Return the smallest and largest value of the first column, `run`, in each row group of a Parquet file."""
    statistics = [file.row_group(group).column(0).statistics for group in range(file.num_row_groups)]
    return {
        str(value) for seen in statistics if seen is not None and seen.has_min_max for value in (seen.min, seen.max)
    }


def read_file(path: Path, kind: type[T], as_it_is: Sequence[str] = ()) -> T:
    """Read a file; all text in it is made printable except under the keys `as_it_is`."""
    try:
        data = msgspec.json.decode(path.read_bytes())
        shown = printable_all(data)
        shown |= {key: data[key] for key in as_it_is if key in data} if isinstance(data, dict) else {}
        return msgspec.convert(shown, kind)
    except OSError as fault:
        raise InputError(f"{path}: cannot be read: {fault.strerror}") from None
    except msgspec.DecodeError as fault:
        raise InputError(f"{path}: {fault}") from None


def _assignments(placement: Any) -> list[Mapping[str, Any]]:
    """Return all assignments of a placement document (`millrace place --json`)."""
    topologies = placement.get("topologies", {}) if isinstance(placement, Mapping) else {}
    return [entry for topology in topologies.values() for entry in topology.get("assignments", ())]


def _placed_nodes(placement: Any) -> Sequence[Mapping[str, Any]]:
    """Return the cluster's nodes listed in a placement document."""
    return placement.get("nodes", ()) if isinstance(placement, Mapping) else ()


def _check_placement(path: Path, placement: Any) -> None:
    try:
        for entry in _assignments(placement):
            entry["executor"], entry["node"], int(entry["slot"])
        for node in _placed_nodes(placement):
            node["id"]
    except (KeyError, TypeError, ValueError, AttributeError) as fault:
        raise InputError(f"{path}: placement: not a placement document: {type(fault).__name__} {fault}") from None


def _nodes(runs: Sequence[Run]) -> tuple[str, ...]:
    listed = {str(node["id"]) for run in runs if run.file for node in _placed_nodes(run.file.placement)}
    return tuple(sorted(listed | {node for run in runs for node, _ in run.slots}, key=_natural))


def _cell(label: str, cpu: str | None, factors: Factors) -> str:
    """Return the label of a workload with what distinguishes its runs; only runs of the same are compared."""
    others = ", ".join(filter(None, (cpu, factors_text(factors))))
    return f"{label} ({others})" if others else label


def _place(values: Sequence[str], value: Any) -> int:
    """Return the position of a factor's value among those of the agenda, behind all of them if it is unknown."""
    text = value_text(value)
    return values.index(text) if text in values else len(values)


def _in_order(listed: Sequence[str], named: Sequence[str]) -> tuple[str, ...]:
    """Return the names in `named`: first in the order of `listed`, then the others in alphabetical order."""
    present = set(named)
    return (*dict.fromkeys(name for name in listed if name in present), *sorted(present - set(listed)))


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key that puts n2 before n10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]
