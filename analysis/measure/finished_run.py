"""A finished run of a campaign, and intervals of it in the clocks of its nodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path

import msgspec

from analysis.records.campaign import Run
from inventory.cluster import Cluster
from inventory.errors import InputError
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
        first_s, last_line = inf, b""
        try:
            with path.open("rb") as lines:
                for line in lines:
                    window = msgspec.json.decode(line, type=_Question).observation
                    if window is not None:
                        first_s = min(first_s, window.at_s)
                        last_line = line if at_s is None or window.at_s <= at_s else last_line
            if not last_line:
                if at_s is None or first_s == inf:
                    return None
                raise InputError(f"{self.run.id}: its scheduler was asked first at {first_s:g} s, after {at_s:g} s")
            return msgspec.json.decode(last_line, type=_WholeQuestion).observation
        except (msgspec.DecodeError, OSError) as fault:
            raise InputError(f"{path}: not the decisions of a run: {fault}") from None

    def interval(self, since_s: float, at_s: float) -> RunPart:
        """Return a part of the run."""
        return RunPart(since_s, at_s, self.run.times.source_start_ns or 0, self.offsets)
