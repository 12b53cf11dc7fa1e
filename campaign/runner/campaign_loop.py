"""Loop over a campaign's runs, with retries, results and interrupts.

The first Ctrl-C finishes the current run and stops, a second one stops at once. Complete runs remain; `--resume`
does the others.
"""

import asyncio
import functools
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign.agenda.plan import Inputs, Plan
from campaign.agenda.run_order import Run
from campaign.agenda.timeline import move_plans
from campaign.display.progress import View
from campaign.results.live_file import FAILING, INTERRUPTED, LiveFile, in_words, ms_in_words, write_live
from campaign.results.recovered_runs import doubt
from campaign.results.result_store import FAILED, OK, SKIPPED, ResultStore
from campaign.runner.event_loop import CampaignEventLoop
from campaign.runner.run_attempt import RunAttempt, remove_results
from campaign.runner.run_inputs import Conditions, RunInputs
from controller.host.cleanup_log import CleanupLog
from controller.host.durable_files import DiskFullError, check_room, converting_full_disk, writing
from controller.host.signals import SIGNALS, ignore_interrupts
from controller.nodes.agents import Member
from controller.nodes.backend import Backend
from inventory.errors import MillraceError, RunError

STOP_NOW = 2
"""Number of interrupts that stop a campaign at once."""

OWN_FOLDER = ".controller"
"""Folder of the controller's own files beside those of nodes, whose ids cannot begin with a dot."""

AFTER_FAILURE = "an earlier run failed, and the agenda stops after a failure"


@dataclass(frozen=True)
class Ending:
    """End of a campaign: whether it was interrupted, and the reasons of runs that are not `ok`."""

    interrupted: bool
    failed: Mapping[str, str]


class Campaign:
    """The runs of one campaign, executed one after the other."""

    def __init__(
        self,
        plan: Plan,
        runs: Sequence[Run],
        inputs: Inputs,
        store: ResultStore,
        state: CleanupLog,
        backend: Backend,
        work: Path,
        view: View,
        profile: bool,
        accepts_shortfall: bool,
    ) -> None:
        """Prepare the runs.

        Args:
            plan: the plan of the campaign.
            runs: the selected runs, in order; those with a good result are skipped.
            inputs: prepared inputs of their workloads.
            store: folder of the results.
            state: log of everything that is started or created.
            backend: the nodes.
            work: folder for files of runs on this host, removed by the caller.
            view: shows progress.
            profile: whether stacks of workers are sampled while runs are measured.
            accepts_shortfall: whether runs are executed on nodes with less than the requested capacity.
        """
        self._plan, self._inputs, self._store, self._state, self._work = plan, inputs, store, state, work
        self._backend = backend
        self._todo = [run for run in runs if not store.is_done(run.name)]
        agenda = plan.agenda
        self._conditions = Conditions(
            agenda.name,
            agenda.warmup_s,
            agenda.duration_s,
            agenda.sensors,
            agenda.idle if "power" in agenda.sensors else None,
            agenda.checkpoint_s,
            profile,
            backend.tier,
            accepts_shortfall,
            backend.processes,
        )
        done = len(runs) - len(self._todo)
        self._live_file = LiveFile(agenda.name, len(runs), done, agenda.warmup_s + agenda.duration_s)
        self._view = view
        self._interrupts = 0
        self._current: asyncio.Task[dict[str, Any]] | None = None

    def run_all(self, loop: CampaignEventLoop, last_stage: str) -> Ending:
        """Execute the runs; call it inside `interrupted_once` and the backend's context.

        Args:
            loop: event loop of the campaign.
            last_stage: stage in `live.json` after the last run.

        Raises:
            UnfitError: results can no longer be written; complete runs are kept.
        """
        self._view.open()
        how = FAILING
        try:
            ending = loop.run(self._loop())
            how = INTERRUPTED if ending.interrupted else last_stage
            return ending
        finally:
            self._view.close()
            self._live_file.close(how)
            write_live(self._live_file.document(), self._store.folder)

    async def _loop(self) -> Ending:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._interrupt, 1 if number == signal.SIGINT else STOP_NOW)
        ticker = loop.create_task(self._tick())
        failed: dict[str, str] = {}
        try:
            for at, run in enumerate(self._todo):
                self._current = loop.create_task(self._execute(run, len(self._todo) - at - 1))
                outcome = await self._current
                if outcome["status"] != OK:
                    failed[run.name] = outcome["reason"]
                if self._interrupts:
                    return Ending(True, failed)
                if failed and self._plan.agenda.on_failure.then == "stop":
                    return Ending(False, failed | self._skip(self._todo[at + 1 :]))
            return Ending(False, failed)
        except asyncio.CancelledError:
            if self._interrupts < STOP_NOW:
                raise
            return Ending(True, failed)
        finally:
            ticker.cancel()
            with suppress(asyncio.CancelledError):
                await ticker
            for number in SIGNALS:
                loop.remove_signal_handler(number)
            # Only clean-up is left.
            ignore_interrupts()

    def _interrupt(self, weight: int) -> None:
        if self._interrupts >= STOP_NOW:
            # Do not interrupt the clean-up: the end of a login session sends SIGTERM and SIGHUP.
            return
        self._interrupts += weight
        if self._interrupts >= STOP_NOW:
            self._view.print_line("stopping now")
            if self._current is not None:
                self._current.cancel()
        else:
            self._view.print_line("interrupted: finishing this run; a second interrupt stops at once", "yellow")

    async def _tick(self) -> None:
        while True:
            document = self._live_file.document()
            self._view.draw(document)
            write_live(document, self._store.folder)
            await asyncio.sleep(1)

    async def _execute(self, run: Run, left: int) -> dict[str, Any]:
        """Execute one run with its retries and store its result."""
        partial = self._state.partial(self._store.runs / run.name)
        with writing(self._store.folder):
            partial.mkdir()
        attempts = 1 + self._plan.agenda.on_failure.retry
        outcome: dict[str, Any] = {}
        for attempt in range(1, attempts + 1):
            self._live_file.start(run, attempt, left)
            try:
                outcome = await self._attempt(run, attempt, partial)
            except DiskFullError as fault:
                shutil.rmtree(partial, ignore_errors=True)
                raise self._store.full(fault) from None
            last = outcome["status"] == OK or attempt == attempts or self._interrupts > 0
            if last:
                break
            self._view.print_line(f"{self._title(run)}: {outcome['reason']}; retrying", "yellow")
            remove_results(partial)
        self._store.complete(run.name, partial, outcome)
        self._print_outcome(run, outcome)
        return outcome

    async def _attempt(self, run: Run, attempt: int, partial: Path) -> dict[str, Any]:
        name = f"{run.name}.{attempt}"
        work = self._work / name
        members = self._backend.members(name, work)
        run_attempt = self._run_attempt(run, members, attempt, partial, work / OWN_FOLDER)
        try:
            with converting_full_disk(self._store.folder, self._work):
                await self._backend.check_room(sum(entry.path.stat().st_size for entry in self._inputs[run.workload]))
                await run_attempt.calibrate(self._backend)
                outcome = await run_attempt.run()
                await self._backend.check_since_calibration()
                return outcome
        except DiskFullError:
            raise
        except Exception as fault:  # noqa: BLE001 - a failed run must not end the campaign
            for folder in (self._work, partial):
                check_room(folder)
            error = fault if isinstance(fault, MillraceError) else RunError(f"{type(fault).__name__}: {fault}")
            with writing(self._store.folder):
                log = await run_attempt.keep_logs(error)
            return run_attempt.record(FAILED, f"{error}; log: {log}")
        finally:
            await asyncio.gather(*(member.transport.remove() for member in members.values()))
            shutil.rmtree(work, ignore_errors=True)

    def _run_attempt(
        self, run: Run, members: Mapping[str, Member], attempt: int, partial: Path, work: Path
    ) -> RunAttempt:
        plan = self._plan
        job = RunInputs(
            run=run,
            application=plan.applications[run.workload],
            placed=plan.placed[run.workload, run.scheduler],
            inputs=self._inputs[run.workload],
            members=members,
            attempt=attempt,
            moves=move_plans(plan.agenda.timeline, run.workload),
            cpus=plan.cpus[run.cpu],
            place_without=functools.partial(plan.place_without, run),
        )
        return RunAttempt(job, self._conditions, partial, work, self._live_file, self._state)

    def _skip(self, runs: Sequence[Run]) -> dict[str, str]:
        """Record skipped runs."""
        for run in runs:
            partial = self._state.partial(self._store.runs / run.name)
            with writing(self._store.folder):
                partial.mkdir()
            record = self._run_attempt(run, {}, 0, partial, self._work).record(SKIPPED, AFTER_FAILURE)
            self._store.complete(run.name, partial, record)
            self._live_file.outcomes[SKIPPED] += 1
        return {run.name: AFTER_FAILURE for run in runs}

    def _title(self, run: Run) -> str:
        return f"run {self._live_file.number}/{self._live_file.total} {run.name}"

    def _print_outcome(self, run: Run, outcome: Mapping[str, Any]) -> None:
        title = self._title(run)
        took = self._live_file.end(outcome["status"])
        if outcome["status"] != OK:
            self._view.print_line(f"{title} failed: {outcome['reason']} (in {self._store.runs / run.name})", "red")
            return
        measured = outcome["measured"]
        latency = measured["latency_ms"]
        parts = [f"{title} ok in {in_words(took)}"]
        if measured["throughput_tuples_per_s"] is not None:
            parts.append(f"{measured['throughput_tuples_per_s']:,.0f} tuples/s")
        else:
            parts.append("nothing measured: the input ended in the warm-up")
        if latency["p50"] is not None:
            parts.append(f"p50 {ms_in_words(latency['p50'])}, p99 {ms_in_words(latency['p99'])}")
        if latency["bound"]:
            parts.append(f"latencies ± {latency['bound']:.2g} ms for the nodes' clocks")
        if measured["saturated"]:
            parts.append("saturated")
        parts += doubt(measured["recoveries"], measured["incomplete"])
        self._view.print_line(", ".join(parts))
        missing = [profile["reason"] for profile in outcome["profiles"] or () if profile["file"] is None]
        if missing:
            self._view.print_line(f"profiles missing: {len(missing)}; {', '.join(sorted(set(missing)))}", "yellow")
