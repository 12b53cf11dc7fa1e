"""Loads: rates that are a share of the sustainable rate of (workload, cluster, baseline), and their calibrations.

A calibration is a search of its own before the first run. Runs share it if they have the same workload with the same
parameters, the same cluster, and a baseline with the same parameters.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from analysis.records.factors import Factors, factors_text
from campaign.agenda.plan import CombinationPlan
from campaign.agenda.run_order import PlannedRun, run_name_part
from workloads.rates import Constant


class LoadCalibration(NamedTuple):
    """Calibration of loads: its name, and the run under the baseline whose placement it has."""

    name: str
    run: PlannedRun


def calibrations_of(
    runs: Sequence[PlannedRun], plans: Mapping[str, CombinationPlan]
) -> dict[tuple[str, str], LoadCalibration]:
    """Return (combination of factors, workload) -> calibration, for runs that are placed and whose rate is a load.

    Args:
        runs: all runs.
        plans: combination of factors, as text, -> plan of its runs.

    Raises:
        InputError: the baseline has no run with the workload, or cannot be placed.
    """
    calibrations: dict[tuple[str, str], LoadCalibration] = {}
    made: dict[tuple[str, str], LoadCalibration] = {}
    for run in runs:
        plan = plans[run.combination]
        application = plan.applications[run.workload]
        is_load = isinstance(application.rate, Constant) and application.rate.load is not None
        if not is_load or (run.workload, run.scheduler) not in plan.placed:
            continue
        baseline = plan.agenda.baseline or ""
        shared = _shared(run.factors, run.workload, baseline)
        key = (run.workload, factors_text(shared))
        if key not in made:
            reference = next(
                (
                    each
                    for each in runs
                    if (each.workload, each.scheduler, each.cpu) == (run.workload, baseline, plan.agenda.cpu_labels[0])
                    and _shared(each.factors, each.workload, baseline) == shared
                    and (each.workload, each.scheduler) in plans[each.combination].placed
                ),
                None,
            )
            if reference is None:
                where = f" at {factors_text(shared)}" if shared else ""
                raise (application.origin / "rate").error(
                    f"a load is a share of what {run.workload!r} sustains under the baseline {baseline!r}, "
                    f"which has no run with it{where}, or cannot be placed"
                )
            name = "-".join(filter(None, (run.workload, baseline, run_name_part(shared))))
            used = sum(each.name.startswith(name) for each in made.values())
            made[key] = LoadCalibration(f"{name}-{used + 1}" if used else name, reference)
        calibrations[run.combination, run.workload] = made[key]
    return calibrations


def _shared(factors: Factors, workload: str, baseline: str) -> Factors:
    """Return the factors that the sustainable rate of a workload under the baseline depends on."""

    def matters(key: str) -> bool:
        entries, _, rest = key.partition(".")
        if entries == "schedulers":
            return rest.startswith(f"{baseline}.")
        if entries == "workloads":
            return rest.startswith(f"{workload}.") and rest != f"{workload}.rate.load"
        return key != "load"

    return {key: value for key, value in factors.items() if matters(key)}
