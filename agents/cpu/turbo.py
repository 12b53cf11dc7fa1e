"""Clocks above the base clock: `intel_pstate/no_turbo`, which says the opposite, or `cpufreq/boost`."""

from agents.cpu.answer import Refusal
from agents.cpu.snapshot import Snapshot
from agents.cpu.step import Step, View, differing, settable
from agents.cpu.topology import FOLDER
from agents.cpu.wish import CpuRequest
from agents.host_files import Finding, HostFiles

NO_TURBO = f"{FOLDER}/intel_pstate/no_turbo"
BOOST = f"{FOLDER}/cpufreq/boost"


def probe(host: HostFiles) -> Finding:
    """Whether turbo can be turned off and on."""
    return settable(host, paths(host), "neither intel_pstate/no_turbo nor cpufreq/boost is there")


def paths(host: HostFiles) -> list[str]:
    """The one switch that this driver has."""
    return [path for path in (NO_TURBO, BOOST) if host.exists(path)][:1]


def state(host: HostFiles) -> bool | None:
    """Whether turbo is allowed; None where the kernel does not say."""
    for path in paths(host):
        said = host.read_if_there(path)
        if said in {"0", "1"}:
            return (said == "1") == (path == BOOST)
    return None


def refusals(wish: CpuRequest, view: View) -> list[Refusal]:
    """Turbo where there is no switch."""
    if wish.turbo is None:
        return []
    found = probe(view.host)
    return [] if found.status == "ok" else [Refusal("turbo", "on" if wish.turbo else "off", "", found.reason)]


def steps(wish: CpuRequest, view: View) -> list[Step]:
    """The switch."""
    if wish.turbo is None:
        return []
    return [
        Step("turbo", path, view.host.read_if_there(path) or "", value, value)
        for path in paths(view.host)
        for value in ["1" if wish.turbo == (path == BOOST) else "0"]
    ]


def steps_back(before: Snapshot, view: View) -> list[Step]:
    """The switch as it was; drivers move the limits of policies with it, which therefore come after."""
    return differing("turbo", paths(view.host), before, view)
