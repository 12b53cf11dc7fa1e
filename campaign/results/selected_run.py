"""The run that is named on the command line, of a finished campaign or of one that is still going on."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from analysis.measure.finished_run import FinishedRun
from analysis.records.campaign import Campaign, load_campaign
from analysis.records.factors import inventory_of
from analysis.records.file_types import CAMPAIGN_FILE
from campaign.results.live_file import CampaignCondition, find_campaign, look_at
from controller.host.ownership import PARTIAL
from inventory.cluster import Cluster
from inventory.errors import InputError, nearest


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
