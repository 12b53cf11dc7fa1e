"""The course of a run on an engine: its executors open, sources start, rows are measured, the topology drains.

Reports are read in the folder of the job (`engines.reports`). Times are those of this host's clock.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agents.protocol import Slot
from analysis.records.interval_metrics import Draining
from engines.job import ANSWERS, EngineJob, EngineProcesses
from engines.limits import RunLimits
from engines.reports import Reports, draining, missing_rows
from inventory.atomic_files import replace_file
from inventory.errors import InputError, RunError
from inventory.times import NS
from workloads.schedules import Schedule

OPEN_S = 120.0
"""Timeout for executors to open after the engine has placed them."""

SILENCE_S = 20.0
"""A process of executors is hung after this time without a line in its report."""

DRAIN_S = 30.0
"""Draining fails after this time without progress."""

LATE_S = 0.5
"""Limits of nodes may be applied so long after the begin of the measured interval, on a host that is busy."""

ANSWER_S = 60.0

CHECK_S = 1.0
"""Interval of checks that the processes of executors are still there."""

MOST_DUE = 20_000_000
"""Most records of a run: due times take 8 bytes each."""

_LEAD_S = 0.5
"""From `go` to the start of sources; executors look for it fifty times a second."""

_POLL_S = 0.2

_CLOCKS_S = 0.1
"""Clocks of nodes differ from their last known offsets by less."""

Enter = Callable[[str, float | None], None]
"""Called at the begin of a stage, with its name and its expected duration in seconds."""


class RunTimes(NamedTuple):
    """Times of a run on the monotonic clock, in nanoseconds."""

    start_ns: int
    measure_start_ns: int
    measure_end_ns: int
    stop_ns: int
    drained_ns: int


@dataclass(frozen=True)
class DrainedRun:
    """A run whose sources have ended, or were given up.

    Attributes:
        times: when it did what.
        drained: whether every row has been processed; `drained_ns` is when it was, or was given up.
        left: what the topology had yet to do at the end.
        places: executor -> worker, as the engine and the executors have reported.
        positions: spout executor -> number of its records emitted, in the topology's order.
        answers: folder of the answers.
    """

    times: RunTimes
    drained: bool
    left: Draining
    places: Mapping[str, Slot]
    positions: Mapping[str, int]
    answers: Path


def write_due(schedule: Schedule | None, seconds: float, path: Path) -> int:
    """Write the due times of all records of a run, 8 bytes each (`millrace.Due`); return their number.

    Args:
        schedule: of all sources together; None: the rate has no schedule.
        seconds: warm-up and measured interval together.
        path: the file.

    Raises:
        InputError: there is no schedule, or there are too many records.
    """
    if schedule is None:
        raise InputError("rates 'replay' and 'max' are not possible on another engine; expected one with a schedule")
    count = schedule.due_count(round(seconds * NS))
    if count > MOST_DUE:
        raise InputError(f"{count:,} records are due in {seconds:g} s, the most on another engine is {MOST_DUE:,}")
    times = np.fromiter((schedule.due_ns(record) for record in range(count)), dtype="<i8", count=count)
    replace_file(path, times.tobytes())
    return count


async def conduct(
    job: EngineJob,
    processes: EngineProcesses,
    reports: Reports,
    limits: RunLimits,
    measured: AbstractAsyncContextManager[None],
    warmup_s: float,
    duration_s: float,
    drain_s: float,
    enter: Enter,
) -> DrainedRun:
    """Conduct a run whose processes have been started.

    Args:
        job: the run.
        processes: the engine that runs it.
        reports: its reports.
        limits: those of its nodes, now lifted.
        measured: entered for the measured interval.
        warmup_s, duration_s: length of the warm-up and of the measured interval.
        drain_s: a topology that has not drained after so many seconds is given up, without an answer.
        enter: called at the begin of every stage.

    Raises:
        RunError: a process ended or is silent, an executor failed, limits were late, or rows were lost.
    """
    reports.offset = processes.offset
    run = _Conducted(job, processes, reports)
    enter("opening executors", None)
    await run.until(lambda: len(reports.places) >= len(job.executors), OPEN_S, run.why_closed)
    differing = {name for name, slot in reports.places.items() if processes.places.get(name) != slot}
    if differing:
        name = min(differing)
        raise RunError(f"{name} runs on {_text(reports.places[name])}, not on {_text(processes.places.get(name))}")
    start = time.monotonic_ns() + round(_LEAD_S * NS)
    begun = start + round(warmup_s * NS)
    ended = begun + round(duration_s * NS)
    await processes.go((start, begun, ended))
    enter("warming up", (begun - time.monotonic_ns()) / NS)
    await run.until_time((start + begun) // 2)
    await limits.apply()
    late_s = (time.monotonic_ns() - begun) / NS
    if late_s > LATE_S:
        raise RunError(
            f"limits of nodes were applied {late_s:.1f} s after the measured interval had begun: a busy host"
        )
    await run.until_time(begun)
    limits.begin()
    enter("measuring", (ended - time.monotonic_ns()) / NS)
    await processes.mark("measure_start")
    async with measured:
        await run.until_time(ended)
    await processes.mark("measure_end")
    await limits.end()
    enter("draining", None)
    drained = await run.drain(ended, drain_s)
    drained_ns, left = time.monotonic_ns(), draining(job.topology, reports)
    if drained:
        enter("collecting answers", None)
        await processes.finish()
        await run.until(lambda: reports.finished, ANSWER_S, lambda: "answers are missing")
        await processes.collect_answers(reports.places)
    positions = {
        executor.name: reports.emitted(executor.name)
        for component in job.topology.components
        if component.kind == "spout"
        for executor in job.topology.executors_of(component.id)
    }
    # No record is due after the measured interval.
    times = RunTimes(start, begun, ended, ended, drained_ns)
    return DrainedRun(times, drained, left, dict(reports.places), positions, job.folder / ANSWERS)


class _Conducted:
    """A run under way."""

    def __init__(self, job: EngineJob, processes: EngineProcesses, reports: Reports) -> None:
        self._job, self._processes, self._reports = job, processes, reports
        self._failed = asyncio.ensure_future(processes.failed)
        self._heard: dict[Slot, tuple[int, float]] = {}
        self._checked_s = 0.0
        self._missing: set[Slot] = set()

    def why_closed(self) -> str:
        """Return which executors have not opened."""
        missing = [name for name in self._job.executors if name not in self._reports.places]
        return f"{len(missing)} executors have not opened, the first one is {missing[0]}"

    async def until(
        self, done: Callable[[], bool], limit_s: float, why: Callable[[], str] = lambda: "it takes too long"
    ) -> None:
        """Read reports until `done`.

        Raises:
            RunError: it takes longer than `limit_s`, for a reason by `why`; or the run has failed.
        """
        ends_s = time.monotonic() + limit_s
        while True:
            self._step()
            if done():
                return
            if time.monotonic() > ends_s:
                raise RunError(f"{why()}, after {limit_s:.0f} s; logs: {self._job.folder}")
            await asyncio.sleep(_POLL_S)

    async def until_time(self, at_ns: int) -> None:
        """Read reports until a time of the monotonic clock.

        Raises:
            RunError: as `until`.
        """
        left_s = (at_ns - time.monotonic_ns()) / NS
        await self.until(lambda: time.monotonic_ns() >= at_ns, left_s + SILENCE_S)

    async def drain(self, stopped_ns: int, within_s: float) -> bool:
        """Wait until all is emitted that was due, and processed, as long as there is progress.

        Args:
            stopped_ns: end of the records that are due; a source may be late, and then emits the others after it.
            within_s: give up after so many seconds.

        Returns:
            Whether the topology has drained.

        Raises:
            RunError: there was no progress for `DRAIN_S`.
        """
        progress, since_s = -1, time.monotonic()
        all_due_ns = stopped_ns + round(_CLOCKS_S * NS)
        ends_s = since_s + within_s
        while True:
            self._step()
            totals = self._reports.totals
            unheard = any(
                name not in totals or totals[name].t_ns - self._offset_ns(name) < all_due_ns
                for name in self._job.executors
            )
            left = next(missing_rows(self._job.topology, self._reports), None)
            if not unheard and left is None:
                return True
            if time.monotonic() > ends_s:
                return False
            now = sum(each.processed + (each.records or 0) for each in totals.values())
            if now != progress:
                progress, since_s = now, time.monotonic()
            elif time.monotonic() - since_s > DRAIN_S:
                why = left or "executors have not reported since the end of the sources"
                raise RunError(f"the topology has not drained, without progress for {DRAIN_S:g} s: {why}")
            await asyncio.sleep(_POLL_S)

    def _step(self) -> None:
        """Read reports, and look for what has failed."""
        if self._failed.done():
            raise RunError(self._failed.result())
        self._reports.read()
        if self._reports.failures:
            raise RunError(f"an executor failed: {self._reports.failures[0]}")
        now_s = time.monotonic()
        self._check_processes(now_s)
        for slot, lines in self._reports.lines.items():
            before, heard_s = self._heard.get(slot, (-1, now_s))
            if lines != before or self._reports.finished:
                self._heard[slot] = lines, now_s
            elif now_s - heard_s > SILENCE_S:
                raise RunError(f"worker {slot.index} of {slot.node} has not reported for {SILENCE_S:g} s")

    def _offset_ns(self, executor: str) -> int:
        return self._reports.offset(self._reports.places[executor].node).offset_ns

    def _check_processes(self, now_s: float) -> None:
        """Every `CHECK_S`, check that the processes of executors are still there; an engine may take long to notice.

        The second time that one is missing ends the run, since its name and signal may be reported a little later.
        """
        if now_s < self._checked_s + CHECK_S or self._reports.finished:
            return
        self._checked_s = now_s
        for slot, pid in self._reports.pids.items():
            if not self._processes.has_ended(slot, pid):
                continue
            if slot in self._missing:
                raise RunError(f"worker {slot.index} of {slot.node} ended in the middle of the run")
            self._missing.add(slot)


def _text(slot: Slot | None) -> str:
    return "no worker" if slot is None else f"{slot.node}/{slot.index}"
