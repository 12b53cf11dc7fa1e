"""Traffic of profiling runs in a campaign's results.

<campaign>/profiling/<name>/
    run.json, traces/, logs/            as of any run
    traffic.json                        its mean rates and loads in the measured interval
"""

from collections.abc import Sequence
from pathlib import Path

from analysis.measure.finished_run import FinishedRun
from analysis.measure.observed import traffic_of_run
from analysis.records.campaign import load_run
from campaign.agenda.campaign_plan import CampaignPlan
from campaign.agenda.profile import ProfiledTraffic, Profiles
from campaign.agenda.profiling import ProfilingRun
from controller.host.disk import writing
from inventory.atomic_files import replace_file
from inventory.documents import dump_json
from inventory.errors import RunError
from workloads.traffic import load_traffic

PROFILING = "profiling"
"""Folder of the profiling runs, in that of the campaign."""

TRAFFIC_FILE = "traffic.json"


def has_traffic(folder: Path, profiling: ProfilingRun) -> bool:
    """Return whether the traffic file of a profiling run is in the campaign's folder."""
    return (folder / _file_of(profiling)).is_file()


def write_traffic(folder: Path, plan: CampaignPlan, profiling: ProfilingRun) -> None:
    """Write the traffic file of a finished profiling run.

    Raises:
        RunError: nothing was measured.
        DiskFullError, UnfitError: it cannot be written.
    """
    run = load_run((folder / _file_of(profiling)).parent)
    if run.reason:
        raise RunError(f"{run.id}: {run.reason}")
    finished = FinishedRun(run, plan.at(profiling.run).cluster)
    traffic = traffic_of_run(finished, *finished.measured_s, lambda _share: None)
    if not traffic.edges:
        raise RunError(f"{run.id}: no tuples were sent in the measured interval")
    with writing(folder):
        replace_file(folder / _file_of(profiling), dump_json(traffic).encode(), durable=True)


def read_profiles(folder: Path, plan: CampaignPlan, profiling: Sequence[ProfilingRun]) -> Profiles:
    """Return the traffic of those profiling runs that have a traffic file, for all combinations that use it.

    Raises:
        InputError: a file is invalid, or is not of the workload's topology.
    """
    profiles: dict[tuple[str, str], ProfiledTraffic] = {}
    for each in profiling:
        if has_traffic(folder, each):
            topology = plan.at(each.run).applications[each.run.workload].topology
            traffic = load_traffic(folder / _file_of(each), [topology])
            profile = ProfiledTraffic(_file_of(each), traffic)
            profiles |= {(combination, each.run.workload): profile for combination in each.combinations}
    return profiles


def _file_of(profiling: ProfilingRun) -> str:
    return f"{PROFILING}/{profiling.run.name}/{TRAFFIC_FILE}"
