"""Clusters of a campaign, of which one is up at a time."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from campaign.agenda.campaign_plan import CampaignPlan
from campaign.agenda.run_order import PlannedRun
from campaign.results.result_store import ResultStore
from campaign.runner.cpu_settings import check_cpus
from campaign.runner.event_loop import CampaignEventLoop
from campaign.runner.open_campaign import Opened
from controller.host.ownership import CleanupLog
from controller.host.signals import interrupted_once, raise_held_interrupt
from controller.nodes.backend import Backend
from engines.selection import AGENTS


def first_inventory(opened: Opened, runs: Sequence[PlannedRun], backends: Mapping[str, Backend]) -> str:
    """Return the inventory of the first of these runs that is not done yet; without one, that of the first cluster."""
    store = ResultStore(opened.folder)
    todo = (run for run in runs if not opened.plan.why_unplaced(run) and not store.is_done(run.name))
    return next((run.inventory for run in todo), next(iter(backends)))


class Clusters:
    """Clusters by their inventory, as in `Run.inventory`; a context manager that ends the one that is up.

    Attributes:
        backends: inventory -> access to its nodes.
        current: the inventory of the cluster that is up.
        loop: the event loop of that cluster.
    """

    def __init__(
        self,
        backends: Mapping[str, Backend],
        plan: CampaignPlan,
        runs: Sequence[PlannedRun],
        state: CleanupLog,
        work: Path,
    ) -> None:
        """Prepare them.

        Args:
            backends: inventory -> access to its nodes.
            plan: the plan of the campaign.
            runs: its selected runs.
            state: log of everything that is started or created.
            work: folder for files on this host.
        """
        self.backends = backends
        self.current: str | None = None
        self._plan, self._runs, self._state, self._work = plan, runs, state, work
        self._up = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def backend(self) -> Backend:
        """The cluster that is up."""
        if self.current is None:
            raise ValueError("no cluster is up")
        return self.backends[self.current]

    def start(self, inventory: str) -> None:
        """Bring up a cluster, reserve its nodes, and check that they have what its runs need.

        Raises:
            MillraceError: the cluster cannot be used.
        """
        backend = self.backends[inventory]
        with ExitStack() as stack:
            stack.enter_context(backend.up(self._state))
            # Threads of an event loop stay in the network namespace in which they were started.
            self.loop = stack.enter_context(CampaignEventLoop())
            stack.enter_context(self.loop.within(backend))
            runs = [run for run in self._runs if run.inventory == inventory]
            check_cpus(self._plan, runs, self.loop, backend, self._state, self._work / "check")
            if any(self._plan.at(run).agenda.engine != AGENTS for run in runs):
                self.loop.run(backend.check_engine())
            self._up = stack.pop_all()
        self.current = inventory

    def switch_to(self, inventory: str) -> None:
        """End the cluster that is up, unless it is this one, and bring up this one.

        Raises:
            KeyboardInterrupt: a signal came since the last run.
            MillraceError: the cluster cannot be used.
        """
        if self.current == inventory:
            return
        self._end()
        with interrupted_once():
            raise_held_interrupt()
            self.start(inventory)

    def _end(self) -> None:
        self.current = None
        self._up.close()
