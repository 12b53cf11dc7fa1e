"""Calibration of loads before the first run: a search per workload, cluster and baseline, kept in `loads/<name>/`."""

from collections.abc import Callable, Sequence

from analysis.records.conditions import LoadRecord
from analysis.records.file_types import OK
from campaign.agenda.campaign_plan import CampaignPlan
from campaign.agenda.run_order import PlannedRun
from campaign.agenda.search import CALIBRATION, CALIBRATION_FIRST_PER_S
from campaign.results.result_store import LOADS, ResultStore
from campaign.runner.rate_search import RateSearch, Trials
from inventory.errors import RunError
from workloads.rates import Constant


class SustainableRates:
    """Sustainable rates that the loads of a campaign's runs are shares of."""

    def __init__(self, plan: CampaignPlan, store: ResultStore) -> None:
        """Prepare it; `store` has the campaign's results."""
        self._plan = plan
        self._store = ResultStore(store.folder, LOADS)
        self._rates: dict[str, float] = {}

    async def calibrate(
        self, runs: Sequence[PlannedRun], trials_of: Callable[[PlannedRun], Trials], show: Callable[[str], None]
    ) -> bool:
        """Find the sustainable rates of these runs that are not known yet; return whether all are known.

        Args:
            runs: runs that will be executed.
            trials_of: returns what the search for a run needs of the campaign.
            show: prints a line.

        Raises:
            RunError: a search found no rate.
        """
        self._store.drop_partial()
        needed = dict(each for each in map(self._plan.calibration_of, runs) if each is not None)
        for name, run in needed.items():
            record = self._store.outcome(name)
            if record is None or record.status != OK:
                show(f"calibrating the load of {name}")
                search = RateSearch(CALIBRATION, CALIBRATION_FIRST_PER_S, self._store, name, trials_of(run))
                record = await search.run()
                if record is None:
                    return False
            if record.status != OK or record.search is None or record.search.tuples_per_s is None:
                raise RunError(f"the load of {name} cannot be calibrated, so that no run was started: {record.reason}")
            self._rates[name] = record.search.tuples_per_s
            show(f"load 1 of {name}: {record.search.tuples_per_s:,.6g} tuples/s")
        return True

    def of(self, run: PlannedRun) -> LoadRecord | None:
        """Return the load of a run whose calibration is known; None if its rate is no load."""
        rate = self._plan.at(run).applications[run.workload].rate
        calibration = self._plan.calibration_of(run)
        if calibration is None or not isinstance(rate, Constant) or rate.load is None:
            return None
        name = calibration.name
        return LoadRecord(
            share=rate.load,
            sustainable_tuples_per_s=self._rates[name],
            tuples_per_s=float(f"{rate.load * self._rates[name]:.6g}"),
            calibration=f"{LOADS}/{name}",
        )
