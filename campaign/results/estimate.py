"""Estimate of the time and of the disk space that runs will need: by earlier runs of the campaign, or assumed."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from analysis.records.file_types import CAMPAIGN_FILE, OK
from campaign.agenda.campaign_plan import CampaignPlan
from campaign.agenda.run_order import PlannedRun
from campaign.agenda.search import CALIBRATION
from campaign.results.live_file import OVERHEAD_S
from campaign.results.result_store import LATEST, LOADS, ResultStore
from engines.selection import AGENTS
from inventory.errors import InputError

RUN_BYTES, EXECUTOR_BYTES = 65_000, 300
"""Assumed size of a run's results without the rows of its executors, and size of an executor's rows per second.

With `wordcount` on two nodes, 22 s and 100 or 1,000 lines/s, 98 and 173 kB were measured for 6 executors (assumed:
105 kB), and 214 and 336 kB for 30 (assumed: 263 kB).
"""

AGENTS_S = 1.6
"""Assumed duration of the start and the end of agents, once per campaign, or per run with `fresh_agents`.

On two cores, 1.2 s and 0.34 s were measured for five nodes of loopback.
"""

REACHED_OVERHEAD_S = 4.0
"""Assumed duration of a run without warm-up and measured interval on nodes that are reached over SSH."""

START_S = 2.5
"""Assumed duration of the start and the end of the program, without a report."""

ENGINE_OVERHEAD_S = 22.0
"""Assumed duration of a run on another engine without warm-up and measured interval: its processes start anew.

On two cores, 17 to 25 s were measured for Storm and Flink with two to four workers.
"""

REPORT_S, REPORT_RUN_S = 17.4, 0.23
"""Assumed duration of a report without runs, and for each run.

On two cores, Spark took 20.2 s for the demo's twelve runs, and 40.5 s for 100 runs with ten million rows.
"""

BRING_UP_S = 28.0
"""Assumed duration of bringing an emulated cluster up, whose nodes are then provisioned.

On two cores, 28.1 s were measured for five nodes (`benchmarks/provision.py`).
"""

_WITH_TUPLES = ("warming up", "measuring")
"""Stages whose duration the agenda gives."""


@dataclass(frozen=True)
class Estimate:
    """Estimated time and disk space of runs.

    Attributes:
        seconds: total duration; of searches, the longest that they can take.
        size_bytes: total size of the results.
        overhead_s: duration of a run without warm-up and measured interval.
        measured_runs: number of earlier runs that were measured; 0 if the figures are assumed.
    """

    seconds: float
    size_bytes: int
    overhead_s: float
    measured_runs: int


@dataclass(frozen=True)
class _Earlier:
    overhead_s: float
    bytes_per_s: float
    runs: int


def estimate(plan: CampaignPlan, runs: Sequence[PlannedRun], folder: Path) -> Estimate:
    """Return the estimate for these runs.

    Args:
        plan: the plan of the campaign.
        runs: runs that are placed and not done yet.
        folder: folder of the campaign's results; if there is none, the latest one beside it is used.
    """
    run_s = plan.agenda.longest_warmup_s + plan.agenda.duration_s
    trials = len(runs) * trials_of(plan) + len(calibrations_left(plan, runs, folder)) * CALIBRATION.most_trials
    earlier = _measured(folder if (folder / CAMPAIGN_FILE).is_file() else folder.parent / LATEST)
    if earlier is None:
        each_s = [_assumed_overhead_s(plan, run) for run in runs]
        assumed_s = sum(each_s) / len(each_s) if each_s else OVERHEAD_S
        executors = (len(plan.at(run).applications[run.workload].topology.executors) for run in runs)
        size = sum(RUN_BYTES + count * EXECUTOR_BYTES * run_s for count in executors)
        return Estimate(trials * (run_s + assumed_s), round(size), assumed_s, 0)
    size = len(runs) * run_s * earlier.bytes_per_s
    return Estimate(trials * (run_s + earlier.overhead_s), round(size), earlier.overhead_s, earlier.runs)


def report_s(runs: int) -> float:
    """Return the assumed duration of the report of a number of runs."""
    return REPORT_S + runs * REPORT_RUN_S


def _assumed_overhead_s(plan: CampaignPlan, run: PlannedRun) -> float:
    agenda = plan.at(run).agenda
    if agenda.engine != AGENTS:
        return ENGINE_OVERHEAD_S
    kept_s = OVERHEAD_S if plan.clusters[run.inventory].hosts is None else REACHED_OVERHEAD_S
    return kept_s + AGENTS_S * agenda.fresh_agents


def trials_of(plan: CampaignPlan) -> int:
    """Return the maximum number of trials of a run: 1, unless runs are searches."""
    return 1 if plan.agenda.search is None else plan.agenda.search.most_trials


def calibrations_left(plan: CampaignPlan, runs: Sequence[PlannedRun], folder: Path) -> list[str]:
    """Return the calibrations of loads that these runs need and that are not done yet."""
    store = ResultStore(folder, LOADS)
    names = {each.name for each in map(plan.calibration_of, runs) if each is not None}
    return sorted(name for name in names if not store.is_done(name))


def _measured(folder: Path) -> _Earlier | None:
    """Return means over the complete runs of an earlier campaign; None without one."""
    store = ResultStore(folder)
    overheads, seconds, size = [], 0.0, 0
    for path in store.runs.glob("*"):
        with suppress(InputError, OSError):
            record = store.outcome(path.name)
            if record is None or record.status != OK:
                continue
            stages_s = record.times.stages_s or {}
            with_tuples_s = sum(stages_s.get(stage, 0.0) for stage in _WITH_TUPLES)
            if with_tuples_s > 0:
                size += sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
                overheads.append(sum(stages_s.values()) - with_tuples_s)
                seconds += with_tuples_s
    if not overheads:
        return None
    return _Earlier(sum(overheads) / len(overheads), size / seconds, len(overheads))
