"""Search for the sustainable rate of one run: trials, each a run of its own at one rate, and their folder.

Trials are in `searches/<run>/<number>/` while the search goes on, so that `--resume` repeats none of them. In the end
the last one at the sustainable rate becomes the result of the run.
"""

import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from analysis.records.conditions import SearchRecord, TrialRecord
from analysis.records.file_types import FAILED, FINISHED, RunRecord
from campaign.agenda.search import SearchEntry, SearchProgress, progress_of
from campaign.results.result_store import ResultStore, remove_measured
from campaign.results.trial_verdict import verdict_of
from controller.host.disk import writing
from inventory.errors import RunError


@dataclass(frozen=True)
class Trials:
    """Parts of its campaign that a search needs.

    Attributes:
        execute: executes the run at a rate in a folder, with its retries.
        new_folder: creates a partial folder of a result, registered for the clean-up.
        show: prints a line.
        is_interrupted: whether the campaign is to stop.
        duration_s: length of the measured interval.
    """

    execute: Callable[[float, Path], Awaitable[RunRecord]]
    new_folder: Callable[[ResultStore, str], Path]
    show: Callable[[str], None]
    is_interrupted: Callable[[], bool]
    duration_s: float


class RateSearch:
    """Search for the sustainable rate of one run."""

    def __init__(self, entry: SearchEntry, first_per_s: float, runs: ResultStore, name: str, trials: Trials) -> None:
        """Prepare the search.

        Args:
            entry: the search.
            first_per_s: its first rate.
            runs: results, among them that of the run.
            name: name of the run.
            trials: what it needs of the campaign.
        """
        self._entry, self._first_per_s, self._trials = entry, first_per_s, trials
        self._runs, self._name = runs, name
        self._store = ResultStore(runs.folder, f"searches/{name}")

    async def run(self) -> RunRecord | None:
        """Search until the bracket is narrow, and store the result; return None if the campaign was interrupted.

        Raises:
            DiskFullError, UnfitError: results can no longer be written.
        """
        self._store.drop_partial()
        done: list[RunRecord] = []
        while True:
            verdicts = [_verdict_in(record) for record in done]
            progress = progress_of(self._entry, self._first_per_s, verdicts)
            if progress.next_rate is None:
                return self._complete(done, verdicts, progress)
            name = f"{len(done) + 1:03d}"
            record = self._store.outcome(name)
            # If a trial had to be repeated and ended otherwise, later ones may be at other rates.
            if record is None or _verdict_in(record).tuples_per_s != progress.next_rate:
                if self._trials.is_interrupted():
                    return None
                partial = self._trials.new_folder(self._store, name)
                record = await self._try(name, partial, progress.next_rate)
                if record.status not in FINISHED:
                    reason = f"trial {len(done) + 1} at {progress.next_rate:,.6g} tuples/s: {record.reason}"
                    return self._fail(replace(record, reason=reason), verdicts, progress, partial)
            done.append(record)

    async def _try(self, name: str, partial: Path, rate: float) -> RunRecord:
        """Execute a trial in its partial folder; store its result, unless it failed."""
        record = await self._trials.execute(rate, partial)
        if record.status in FINISHED:
            try:
                entry = self._entry
                verdict = verdict_of(partial / "traces", record, rate, entry.slo, self._trials.duration_s)
            except RunError as fault:
                record = replace(record, status=FAILED, reason=str(fault))
        if record.status not in FINISHED:
            return record
        record = replace(record, search=self._record([verdict], SearchProgress(None, None, (), None)))
        if not verdict.holds:
            remove_measured(partial)
        self._store.complete(name, partial, record)
        words = "holds" if verdict.holds else f"does not hold: {verdict.reason}"
        self._trials.show(f"{self._name}: trial {int(name)} at {rate:,.6g} tuples/s {words}")
        return record

    def _complete(self, done: list[RunRecord], verdicts: list[TrialRecord], progress: SearchProgress) -> RunRecord:
        """Make the last good trial at the highest rate the result of the run."""
        if progress.message:
            kept = self._store.runs.relative_to(self._runs.folder)
            reason = f"{progress.message} (remove {kept} to have it searched again)"
            return self._fail(replace(done[-1], status=FAILED, reason=reason), verdicts, progress)
        best = max(at for at, each in enumerate(verdicts) if each.holds and each.tuples_per_s == progress.holds)
        record = replace(done[best], search=self._record(verdicts, progress))
        self._store_result(record, self._store.runs / f"{best + 1:03d}")
        shutil.rmtree(self._store.runs, ignore_errors=True)
        with suppress(OSError):
            # Searches of runs that failed may still be there.
            self._store.runs.parent.rmdir()
        return record

    def _fail(
        self, record: RunRecord, verdicts: list[TrialRecord], progress: SearchProgress, folder: Path | None = None
    ) -> RunRecord:
        """Store a search without a result, with the folder of a trial that failed; the other trials are kept."""
        record = replace(record, measured=None, search=self._record(verdicts, progress))
        self._store_result(record, folder)
        return record

    def _store_result(self, record: RunRecord, folder: Path | None) -> None:
        """Store the result of the run in a folder of its own, or in that of a trial."""
        partial = self._trials.new_folder(self._runs, self._name)
        if folder is not None:
            with writing(self._runs.folder):
                partial.rmdir()
                folder.rename(partial)
        self._runs.complete(self._name, partial, record)

    def _record(self, verdicts: list[TrialRecord], progress: SearchProgress) -> SearchRecord:
        entry = self._entry
        return SearchRecord(
            kind=entry.kind,
            slo=entry.slo,
            checks=entry.checks,
            tolerance_percent=entry.tolerance_percent,
            tuples_per_s=None if progress.message or progress.next_rate is not None else progress.holds,
            fails_tuples_per_s=progress.fails,
            brackets=progress.brackets,
            trials=verdicts,
        )


def _verdict_in(record: RunRecord) -> TrialRecord:
    """Return the verdict of a stored trial."""
    if record.search is None or len(record.search.trials) != 1:
        raise RunError("a trial of the search has no verdict; remove its folder in searches/")
    return record.search.trials[0]
