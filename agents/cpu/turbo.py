"""Clocks above the base clock: `intel_pstate/no_turbo`, which is inverted, or `cpufreq/boost`."""

from agents.cpu.feature import SettingChange, View, differing, settable
from agents.cpu.request import CpuRequest
from agents.cpu.result import Refusal
from agents.cpu.snapshot import Snapshot
from agents.cpu.topology import FOLDER
from agents.host_files import Finding, HostFiles

NO_TURBO = f"{FOLDER}/intel_pstate/no_turbo"
BOOST = f"{FOLDER}/cpufreq/boost"


def probe(host: HostFiles) -> Finding:
    """Check whether turbo can be turned off and on."""
    return settable(host, paths(host), "neither intel_pstate/no_turbo nor cpufreq/boost exists")


def paths(host: HostFiles) -> list[str]:
    """Return the file that this driver has, if any."""
    return [path for path in (NO_TURBO, BOOST) if host.exists(path)][:1]


def state(host: HostFiles) -> bool | None:
    """Return whether turbo is allowed; None when unknown."""
    for path in paths(host):
        said = host.read_if_there(path)
        if said in {"0", "1"}:
            return (said == "1") == (path == BOOST)
    return None


def refusals(request: CpuRequest, view: View) -> list[Refusal]:
    """Refuse turbo where it cannot be set."""
    if request.turbo is None:
        return []
    found = probe(view.host)
    return [] if found.status == "ok" else [Refusal("turbo", "on" if request.turbo else "off", "", found.reason)]


def changes(request: CpuRequest, view: View) -> list[SettingChange]:
    """Return the change of the file."""
    if request.turbo is None:
        return []
    return [
        SettingChange("turbo", path, view.host.read_if_there(path) or "", value, value)
        for path in paths(view.host)
        for value in ["1" if request.turbo == (path == BOOST) else "0"]
    ]


def changes_back(before: Snapshot, view: View) -> list[SettingChange]:
    """Return the change back; drivers move the limits of policies with turbo, so the limits are restored later."""
    return differing("turbo", paths(view.host), before, view)
