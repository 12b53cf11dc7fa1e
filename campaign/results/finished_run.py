"""A finished run of a campaign, and intervals of it in the clocks of its nodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path

import msgspec

from analysis.records.campaign import Campaign, Run, load_campaign
from analysis.records.factors import inventory_of
from analysis.records.file_types import CAMPAIGN_FILE
from campaign.results.live_file import CampaignCondition, find_campaign, look_at
from controller.host.ownership import PARTIAL
from inventory.cluster import Cluster
from inventory.errors import InputError, nearest
from inventory.times import NS
from scheduler.deciding import DECISIONS_FILE
from scheduler.online.observation import Observation
from scheduler.problem import Slot
from workloads.scaling import sizes_of


@dataclass(frozen=True)
class RunPart:
    """A part of a run, (`since_s`, `at_s`], in seconds since its sources started.

    Attributes:
        source_start_ns: the start of the sources, in the controller's clock.
        offsets: node -> its clock minus the controller's, in nanoseconds.
    """

    since_s: float
    at_s: float
    source_start_ns: int
    offsets: Mapping[str, int]

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.at_s - self.since_s

    def of(self, node: str, worker: int) -> tuple[int, int]:
        """Return its begin and end in a node's clock, in nanoseconds; all workers of a node share its clock."""
        start_ns = self.source_start_ns + self.offsets.get(node, 0)
        return start_ns + round(self.since_s * NS), start_ns + round(self.at_s * NS)


class _Window(msgspec.Struct):
    at_s: float


class _Question(msgspec.Struct):
    observation: _Window | None = None


class _WholeQuestion(msgspec.Struct):
    observation: Observation


@dataclass(frozen=True)
class FinishedRun:
    """A run with status `ok` and complete traces, and the cluster of its campaign."""

    run: Run
    cluster: Cluster

    @property
    def traces(self) -> Path:
        """Folder of `<table>.parquet`."""
        return self.run.folder / "traces"

    @property
    def placed(self) -> dict[str, Slot]:
        """Executor -> its first slot, in the topology's order."""
        return {name: Slot(*place) for name, place in self.run.placed.items()}

    def placed_at(self, at_s: float) -> dict[str, Slot]:
        """Return the executors that run after the scalings until then -> first slot, in the topology's order."""
        placed = self.placed
        sizes = sizes_of(placed)
        for scaling in self.run.file.measured.scalings if self.run.file and self.run.file.measured else ():
            if scaling.at_s + scaling.pause_s <= at_s:
                sizes[scaling.component] = scaling.after
                for name, worker in scaling.added.items():
                    node, _, slot = worker.rpartition("/")
                    placed[name] = Slot(node, int(slot))
        names = [f"{component}[{index}]" for component, size in sizes.items() for index in range(size)]
        return {name: placed[name] for name in names}

    @property
    def frequencies_hz(self) -> Mapping[str, float]:
        """Node -> the clock that the scheduler chose."""
        placement = self.run.file.placement if self.run.file else None
        chosen: Mapping[str, float] = (placement or {}).get("frequencies_hz") or {}
        return chosen

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Node -> its clock minus the controller's, in nanoseconds."""
        nodes = self.run.file.nodes if self.run.file else {}
        return {node: known.clock.offset_ns for node, known in nodes.items()}

    @property
    def measured_s(self) -> tuple[float, float]:
        """Begin and end of the measured interval, in seconds since the sources started."""
        times = self.run.times
        return self.seconds(times.measure_start_ns or 0), self.seconds(times.measure_end_ns or 0)

    @property
    def stopped_s(self) -> float:
        """End of the sources, in seconds since their start."""
        times = self.run.times
        return self.seconds(times.stopped_ns or times.measure_end_ns or 0)

    def seconds(self, t_ns: int) -> float:
        """Convert a time of the controller's clock to seconds since the sources started."""
        return (t_ns - (self.run.times.source_start_ns or 0)) / NS

    def kept_observation(self, at_s: float | None) -> Observation | None:
        """Return the last observation until a time that the run's online scheduler was asked about.

        Args:
            at_s: in seconds since the sources started; None: the end of the run.

        Returns:
            The observation; None if the run has no online scheduler, or it was not asked.

        Raises:
            InputError: it was asked later only, or the file is damaged.
        """
        path = self.run.folder / DECISIONS_FILE
        if not path.is_file():
            return None
        first_s, found = inf, b""
        try:
            with path.open("rb") as lines:
                for line in lines:
                    window = msgspec.json.decode(line, type=_Question).observation
                    if window is not None:
                        first_s = min(first_s, window.at_s)
                        found = line if at_s is None or window.at_s <= at_s else found
            if not found:
                if at_s is None or first_s == inf:
                    return None
                raise InputError(f"{self.run.id}: its scheduler was asked first at {first_s:g} s, after {at_s:g} s")
            return msgspec.json.decode(found, type=_WholeQuestion).observation
        except (msgspec.DecodeError, OSError) as fault:
            raise InputError(f"{path}: not the decisions of a run: {fault}") from None

    def interval(self, since_s: float, at_s: float) -> RunPart:
        """Return a part of the run."""
        return RunPart(since_s, at_s, self.run.times.source_start_ns or 0, self.offsets)


@dataclass(frozen=True)
class SelectedRun:
    """A run that was named on the command line; `is_running` if it is still going on."""

    campaign: Campaign
    name: str
    is_running: bool

    @property
    def cluster(self) -> Cluster:
        """The cluster of its campaign; if there are several, the one of its inventory.

        Raises:
            InputError: `campaign.json` has no valid cluster.
        """
        file = self.campaign.file
        run = next((run for run in self.campaign.runs if run.id.removesuffix(PARTIAL) == self.name), None)
        inventory = inventory_of(run.file.factors) if run is not None and run.file is not None else ""
        try:
            return msgspec.convert(file.clusters[inventory].cluster if inventory else file.cluster, Cluster)
        except KeyError:
            raise InputError(f"{self.campaign.folder / CAMPAIGN_FILE}: clusters: has no {inventory!r}") from None
        except msgspec.ValidationError as fault:
            raise InputError(f"{self.campaign.folder / CAMPAIGN_FILE}: cluster: {fault}") from None

    def finished(self) -> FinishedRun:
        """Return its results.

        Raises:
            InputError: it is still running, it failed, or its traces are not complete.
        """
        where = f"{self.campaign.folder}: {self.name}"
        if self.is_running:
            raise InputError(f"{where} is still running; its traces are collected at its end")
        run = next(run for run in self.campaign.runs if run.id.removesuffix(PARTIAL) == self.name)
        if run.reason:
            raise InputError(f"{where} has no measurements to use ({run.status}: {run.reason})")
        return FinishedRun(run, self.cluster)


def select_run(folder: Path, name: str | None = None, prefer_running: bool = False) -> SelectedRun:
    """Return the run in `folder`, the folder of a run or of a campaign, or `latest` for the newest campaign.

    Args:
        folder: the folder.
        name: the run of the campaign.
        prefer_running: whether the run that is still going on is selected without a name.

    Raises:
        InputError: there is no such run, or the campaign has several and none is named.
    """
    folder = find_campaign(folder)
    inside = folder.resolve()
    if inside.parent.name == "runs" and (inside.parent.parent / CAMPAIGN_FILE).is_file():
        own = inside.name.removesuffix(PARTIAL)
        if name not in (None, own):
            raise InputError(f"--run {name}: {folder} is the folder of the run {own}")
        folder, name = inside.parent.parent, own
    campaign = load_campaign(folder)
    running = _running(folder)
    names = [run.id.removesuffix(PARTIAL) for run in campaign.runs]
    if running is not None and running not in names:
        names.append(running)
    if name is None and running and prefer_running:
        name = running
    if name is None and len(names) != 1:
        listed = "".join(f"\n  {each}" for each in names)
        raise InputError(f"{folder}: has {len(names)} runs; choose one with --run NAME{':' * bool(names)}{listed}")
    chosen = names[0] if name is None else name
    if chosen not in names:
        raise InputError(f"{folder}: has no run {chosen!r}{nearest(chosen, names)}")
    return SelectedRun(campaign, chosen, chosen == running)


def _running(folder: Path) -> str | None:
    """Return the name of the run that is going on, or None."""
    try:
        watched = look_at(folder)
    except InputError:
        # A campaign without a valid live.json has ended, or never began.
        return None
    is_running = watched.condition is CampaignCondition.RUNNING and watched.live is not None
    return watched.live.run if is_running and watched.live is not None else None
