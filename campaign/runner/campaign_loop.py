"""Execution of a campaign's runs one after the other, with retries, results and interrupts.

The first Ctrl-C finishes the current run and stops, a second one stops at once. Complete runs remain; `--resume`
does the others.
"""

import asyncio
import dataclasses
import functools
import itertools
import os
import shutil
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from analysis.page.noisy_settings import before_a_run
from analysis.records.file_types import FAILED, FINISHED, INCOMPLETE, OK, SKIPPED, RunRecord
from campaign.agenda.campaign_plan import CampaignPlan, Inputs
from campaign.agenda.engine import options_of
from campaign.agenda.run_order import PlannedRun
from campaign.agenda.search import at_rate, first_rate
from campaign.display.progress import ProgressView, decision_in_words
from campaign.display.run_text import outcome_in_words
from campaign.display.terminal import show
from campaign.results.live_file import FAILING, INTERRUPTED, LiveFile, write_live
from campaign.results.result_store import ResultStore, remove_measured
from campaign.runner.clusters import Clusters
from campaign.runner.engine_attempt import EngineAttempt
from campaign.runner.loads import SustainableRates
from campaign.runner.rate_search import RateSearch, Trials
from campaign.runner.run_attempt import RunAttempt
from campaign.runner.run_environment import CampaignConditions, Ending, RunInputs, unplaced_record
from controller.host.disk import DiskFullError, check_room, converting_full_disk, writing
from controller.host.ownership import CleanupLog
from controller.host.signals import SIGNALS, hold_interrupts, interrupts_blocked
from controller.nodes.agents import KeptAgents, RunNode
from engines.selection import AGENTS
from inventory.errors import MillraceError, RunError
from scheduler.toolkit.cost import Cost
from workloads.workload import PreparedInput

STOP_NOW = 2
"""Number of interrupts that stop a campaign at once."""

OWN_FOLDER = ".controller"
"""Folder of the controller's own files beside those of nodes, whose ids cannot begin with a dot."""

AFTER_FAILURE = "an earlier run failed, and the agenda stops after a failure"


@dataclasses.dataclass(frozen=True)
class CampaignFiles:
    """Files of a campaign on this host.

    Attributes:
        store: folder of the results.
        state: log of everything that is started or created.
        work: folder for files of runs, removed by the caller.
    """

    store: ResultStore
    state: CleanupLog
    work: Path


class CampaignLoop:
    """The runs of one campaign, executed one after the other."""

    def __init__(
        self,
        plan: CampaignPlan,
        runs: Sequence[PlannedRun],
        inputs: Inputs,
        files: CampaignFiles,
        clusters: Clusters,
        view: ProgressView,
        conditions: CampaignConditions,
    ) -> None:
        """Prepare the runs.

        Args:
            plan: the plan of the campaign.
            runs: the selected runs, in order; those with a good result are skipped.
            inputs: prepared inputs of their workloads.
            files: results, and files of runs.
            clusters: the clusters; one is up.
            view: shows progress.
            conditions: settings of all runs.
        """
        self._plan, self._inputs, self._clusters, self._conditions = plan, inputs, clusters, conditions
        self._store, self._state, self._work = files.store, files.state, files.work
        store = files.store
        placed = [run for run in runs if not plan.why_unplaced(run)]
        self._unplaced = [run for run in runs if plan.why_unplaced(run)]
        todo = [run for run in placed if not store.is_done(run.name)]
        inventories = list(dict.fromkeys(run.inventory for run in todo))
        self._todo = sorted(todo, key=lambda run: inventories.index(run.inventory))
        self._failed: dict[str, str] = {}
        agenda = plan.agenda
        done = len(placed) - len(self._todo)
        trials = agenda.search.most_trials if agenda.search is not None else 1
        self._live_file = LiveFile(agenda.name, len(runs), done, trials * (agenda.longest_warmup_s + agenda.duration_s))
        before = {run.name: store.outcome(run.name) for run in placed if run not in self._todo}
        self._incomplete = {name: it.reason for name, it in before.items() if it and it.status == INCOMPLETE}
        self._live_file.outcomes.update({OK: -len(self._incomplete), INCOMPLETE: len(self._incomplete)})
        self._loads = SustainableRates(plan, store)
        self._view = view
        self._checked: set[str | None] = set()
        self._kept = KeptAgents()
        self._agents_before: bool | None = None
        self._interrupts = 0
        self._current: asyncio.Task[RunRecord | None] | asyncio.Task[bool] | None = None

    def run_all(self, last_stage: str) -> Ending:
        """Execute the runs; call it inside `interrupted_once` and the clusters' context.

        Args:
            last_stage: stage in `live.json` after the last run.

        Raises:
            UnfitError: results can no longer be written; complete runs are kept.
        """
        self._view.open()
        how = FAILING
        try:
            ending = self._run_on_clusters()
            # A signal may also come after the last run.
            ending = Ending(self._interrupts > 0, {**self._incomplete, **ending.failed})
            how = INTERRUPTED if ending.interrupted else last_stage
            return ending
        finally:
            self._view.close()
            self._live_file.close(how)
            write_live(self._live_file.record(), self._store.folder)

    def _run_on_clusters(self) -> Ending:
        """Execute the runs of one cluster after the other."""
        if not self._todo:
            self._clusters.loop.run(self._loop([]))
        for inventory, group in itertools.groupby(enumerate(self._todo), lambda each: each[1].inventory):
            try:
                self._switch_to(inventory)
            except KeyboardInterrupt:
                self._interrupts += 1
                return Ending(True, self._failed)
            ending = self._clusters.loop.run(self._loop([*group]))
            if ending is not None:
                return ending
        return Ending(False, self._failed)

    def _switch_to(self, inventory: str) -> None:
        if inventory == self._clusters.current:
            return
        self._live_file.stage("starting the cluster")
        write_live(self._live_file.record(), self._store.folder)
        # What starts a cluster prints lines of its own.
        self._view.close()
        show(f"cluster: {inventory}", error=True)
        self._clusters.switch_to(inventory)
        self._view.open()

    async def _loop(self, runs: Sequence[tuple[int, PlannedRun]]) -> Ending | None:
        """Execute these runs of one cluster, each with its position; return None if the campaign goes on."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._interrupt, 1 if number == signal.SIGINT else STOP_NOW)
        ticker = loop.create_task(self._tick())
        failed = self._failed
        try:
            self._leave_out()
            trials_of = functools.partial(self._trials, left=len(self._todo))
            mine = [run for _, run in runs]
            self._current = loop.create_task(self._loads.calibrate(mine, trials_of, self._view.print_line))
            if not await self._current:
                return Ending(True, failed)
            for at, run in runs:
                execution = self._current = loop.create_task(self._execute(run, len(self._todo) - at - 1))
                record = await execution
                if record is not None and record.status == INCOMPLETE:
                    self._incomplete[run.name] = record.reason
                elif record is not None and record.status != OK:
                    failed[run.name] = record.reason
                if self._interrupts:
                    return Ending(True, failed)
                if failed and self._plan.agenda.on_failure.then == "stop":
                    return Ending(False, failed | self._skip(self._todo[at + 1 :]))
            return None
        except asyncio.CancelledError:
            if self._interrupts < STOP_NOW:
                raise
            return Ending(True, failed)
        finally:
            await self._kept.end_all()
            ticker.cancel()
            with suppress(asyncio.CancelledError):
                await ticker
            with interrupts_blocked():
                for number in SIGNALS:
                    loop.remove_signal_handler(number)
                # Clean-up is not interrupted; what comes meanwhile is for the report.
                hold_interrupts()

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
            self._print_revisions()
            record = self._live_file.record()
            self._view.draw(record)
            write_live(record, self._store.folder)
            await asyncio.sleep(1)

    async def _execute(self, run: PlannedRun, left: int) -> RunRecord | None:
        """Execute one run, or the search that it is, and store its result; None if a search was interrupted."""
        self._live_file.start(run, 1, left, self._cost(run))
        record: RunRecord | None
        if self._plan.agenda.search is not None:
            application = self._plan.at(run).applications[run.workload]
            first_per_s = first_rate(application.rate, application.origin / "rate")
            search = RateSearch(self._plan.agenda.search, first_per_s, self._store, run.name, self._trials(run, left))
            record = await search.run()
        else:
            partial = self._new_folder(self._store, run.name)
            record = await self._try(run, partial, left)
            self._store.complete(run.name, partial, record)
        if record is not None:
            self._print_outcome(run, record)
        return record

    def _cost(self, run: PlannedRun) -> Cost:
        """Return the cost of a run's placement at its start."""
        return self._plan.at(run).placed[run.workload, run.scheduler].answer.cost

    def _trials(self, run: PlannedRun, left: int) -> Trials:
        """Return what a search with this run needs."""
        return Trials(
            execute=functools.partial(self._try_at, run, left),
            new_folder=self._new_folder,
            show=self._view.print_line,
            is_interrupted=self._is_interrupted,
            duration_s=self._conditions.duration_s,
        )

    async def _try_at(self, run: PlannedRun, left: int, tuples_per_s: float, partial: Path) -> RunRecord:
        """Execute one run at a rate, as a trial."""
        return await self._try(run, partial, left, tuples_per_s)

    def _is_interrupted(self) -> bool:
        return self._interrupts > 0

    def _new_folder(self, store: ResultStore, name: str) -> Path:
        """Create the partial folder of a result."""
        partial = self._state.partial(store.runs / name)
        with writing(self._store.folder):
            partial.mkdir(parents=True)
        return partial

    async def _try(self, run: PlannedRun, partial: Path, left: int, tuples_per_s: float | None = None) -> RunRecord:
        """Execute one run with its retries, at the agenda's rate or at another one."""
        attempts = 1 + self._plan.agenda.on_failure.retry
        for attempt in itertools.count(1):
            if attempt > 1:
                self._live_file.start(run, attempt, left, self._cost(run))
            try:
                record = await self._attempt(run, attempt, partial, tuples_per_s)
            except DiskFullError as fault:
                shutil.rmtree(partial, ignore_errors=True)
                raise self._store.full(fault) from None
            self._print_revisions()
            if record.status in FINISHED or attempt == attempts or self._interrupts > 0:
                break
            self._view.print_line(f"{self._title(run)}: {record.reason}; retrying", "yellow")
            remove_measured(partial)
        return record

    async def _attempt(self, run: PlannedRun, attempt: int, partial: Path, tuples_per_s: float | None) -> RunRecord:
        name = f"{run.name}.{attempt}"
        work = self._work / name
        backend = self._clusters.backend
        members = backend.members(name, work)
        nodes = self._plan.at(run).cluster.by_id
        used = {node: member for node, member in members.items() if node in nodes}
        kept = await self._kept_for(run)
        run_attempt = self._run_attempt(run, used, attempt, partial, work / OWN_FOLDER, tuples_per_s, kept)
        try:
            with converting_full_disk(self._store.folder, self._work):
                await backend.check_room(sum(entry.path.stat().st_size for entry in self._inputs_of(run)))
                await run_attempt.calibrate(backend)
                record = await run_attempt.run()
                await backend.check_since_calibration()
                return record
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

    async def _kept_for(self, run: PlannedRun) -> KeptAgents | None:
        """Return the agents that the run takes over, None if it has none; end those that it would find otherwise.

        Agents that have forked workers for columns hold more memory than others, which their next workers share.
        """
        plan = self._plan.at(run)
        has_own = plan.agenda.fresh_agents or plan.agenda.engine != AGENTS
        wanted = None if has_own else plan.applications[run.workload].columns
        if wanted != self._agents_before:
            await self._kept.end_all()
        self._agents_before = wanted
        return None if has_own else self._kept

    def _run_attempt(
        self,
        run: PlannedRun,
        members: Mapping[str, RunNode],
        attempt: int,
        partial: Path,
        work: Path,
        tuples_per_s: float | None = None,
        kept: KeptAgents | None = None,
    ) -> RunAttempt:
        plan = self._plan.at(run)
        application = plan.applications[run.workload]
        calibrates = tuples_per_s is not None and plan.agenda.search is None
        load = None if calibrates else self._loads.of(run)
        tuples_per_s = tuples_per_s if load is None else load.tuples_per_s
        if tuples_per_s is not None:
            application = dataclasses.replace(application, rate=at_rate(application.rate, tuples_per_s))
        job = RunInputs(
            run=run,
            application=application,
            placed=plan.placed[run.workload, run.scheduler],
            scheduler=plan.agenda.scheduler_named[run.scheduler],
            online=plan.online.get(run.scheduler),
            inputs=self._inputs_of(run),
            members=members,
            attempt=attempt,
            # The timeline belongs to the runs; what is sustainable is that of an undisturbed one.
            events=() if calibrates else plan.events[run.workload, run.scheduler],
            load=load,
            cpus=plan.cpus[run.cpu],
            place_without=functools.partial(plan.place_without, run),
            problem=plan.problem(plan.applications[run.workload], plan.cluster_of(run.scheduler)),
        )
        backend = self._clusters.backends[run.inventory]
        # Processes are those of the cluster that is up; a run that is skipped needs none.
        is_up = run.inventory == self._clusters.current
        processes = backend.processes if is_up else None
        conditions = dataclasses.replace(
            self._conditions,
            tier=backend.tier,
            processes=processes,
            doubts=self._plan.doubts(run),
            linger_ms=plan.agenda.linger_ms,
        )
        arguments = (job, conditions, partial, work, self._live_file, self._state, self._check_facts)
        if plan.agenda.engine == AGENTS:
            return RunAttempt(*arguments, kept)
        attempt_there = EngineAttempt(*arguments)
        nodes = backend.local_nodes if is_up else None
        attempt_there.use(plan.agenda.engine, options_of(plan.agenda), work, nodes, backend.engine_address)
        return attempt_there

    def _check_facts(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        """Print, once for each cluster, what of its machines can make figures vary."""
        if self._clusters.current in self._checked:
            return
        self._checked.add(self._clusters.current)
        load = None if self._clusters.backend.processes is None else os.getloadavg()[0]
        for line in before_a_run(facts, load, len(os.sched_getaffinity(0))):
            self._view.print_line(line, "yellow")

    def _inputs_of(self, run: PlannedRun) -> Sequence[PreparedInput]:
        return self._inputs[run.combination, run.workload]

    def _leave_out(self) -> None:
        """Record the runs that cannot be placed, which the agenda leaves out."""
        for run in self._unplaced:
            if self._store.outcome(run.name) is None:
                self._store_skipped(
                    run, unplaced_record(run, self._plan.at(run), self._clusters.backends[run.inventory].tier)
                )
        unplaced, self._unplaced = self._unplaced, []
        self._live_file.outcomes[SKIPPED] += len(unplaced)
        for reason, count in Counter(map(self._plan.why_unplaced, unplaced)).items():
            self._view.print_line(f"left out, because they cannot be placed: {count} runs: {reason}", "yellow")

    def _skip(self, runs: Sequence[PlannedRun]) -> dict[str, str]:
        """Record runs that are skipped after a failure."""
        for run in runs:
            attempt = self._run_attempt(run, {}, 0, self._store.runs / run.name, self._work)
            self._store_skipped(run, attempt.record(SKIPPED, AFTER_FAILURE))
        self._live_file.outcomes[SKIPPED] += len(runs)
        return {run.name: AFTER_FAILURE for run in runs}

    def _store_skipped(self, run: PlannedRun, record: RunRecord) -> None:
        self._store.complete(run.name, self._new_folder(self._store, run.name), record)

    def _title(self, run: PlannedRun) -> str:
        return f"run {self._live_file.number}/{self._live_file.total} {run.name}"

    def _print_revisions(self) -> None:
        for decision in self._live_file.take_decisions():
            if decision.outcome != "no":
                self._view.print_line(f"revision {decision.number}: {decision_in_words(decision)}")

    def _print_outcome(self, run: PlannedRun, record: RunRecord) -> None:
        title = self._title(run)
        took = self._live_file.end(record.status)
        for text, style in outcome_in_words(title, record, took, self._store.runs / run.name):
            self._view.print_line(text, style)
