"""cpufreq policies of a host: groups of CPUs that share one clock."""

from dataclasses import dataclass

from agents.cpu.topology import FOLDER, parse_list
from agents.host_files import HostFiles

POLICIES = f"{FOLDER}/cpufreq"


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy with at least one online CPU. Clocks are in kHz; None when the kernel does not report a value.

    Attributes:
        name: such as `policy0`.
        cpus: all its CPUs, offline ones included.
        driver: the cpufreq driver.
        governor: current governor.
        governors: available governors.
        low, high: current range (`scaling_min_freq`, `scaling_max_freq`).
        lowest, highest: hardware range (`cpuinfo_min_freq`, `cpuinfo_max_freq`).
        base: the highest clock without turbo.
        table: available clocks, ascending; empty when every clock is available.
        epp: current energy-performance preference.
        epps: available preferences.
    """

    name: str
    cpus: tuple[int, ...]
    driver: str
    governor: str | None
    governors: tuple[str, ...]
    low: int | None
    high: int | None
    lowest: int | None
    highest: int | None
    base: int | None
    table: tuple[int, ...]
    epp: str | None
    epps: tuple[str, ...]

    def file(self, name: str) -> str:
        """Return the path of one of its files."""
        return f"{POLICIES}/{self.name}/{name}"


def read_policies(host: HostFiles, online: frozenset[int]) -> tuple[Policy, ...]:
    """Read the policies with an online CPU, in order of number.

    When all CPUs of a policy are offline, some kernels remove its files; with others, reading them fails with EBUSY.
    """
    names = [name for name in host.names(POLICIES) if name.startswith("policy") and name[6:].isdigit()]
    found = (_read(host, name) for name in sorted(names, key=lambda name: int(name[6:])))
    return tuple(policy for policy in found if policy and online.intersection(policy.cpus))


def _read(host: HostFiles, name: str) -> Policy | None:
    def text(file: str) -> str | None:
        return host.read_if_there(f"{POLICIES}/{name}/{file}") or None

    def clock(file: str) -> int | None:
        said = text(file)
        return int(said) if said and said.isdigit() else None

    driver = text("scaling_driver")
    if driver is None:
        return None
    try:
        cpus = parse_list(text("related_cpus") or text("affected_cpus") or name[6:])
    except ValueError:
        cpus = (int(name[6:]),)
    listed = f"{text('scaling_available_frequencies') or ''} {text('scaling_boost_frequencies') or ''}"
    return Policy(
        name=name,
        cpus=cpus,
        driver=driver,
        governor=text("scaling_governor"),
        governors=tuple((text("scaling_available_governors") or "").split()),
        low=clock("scaling_min_freq"),
        high=clock("scaling_max_freq"),
        lowest=clock("cpuinfo_min_freq"),
        highest=clock("cpuinfo_max_freq"),
        base=clock("base_frequency"),
        table=tuple(sorted({int(word) for word in listed.split() if word.isdigit()})),
        epp=text("energy_performance_preference"),
        epps=tuple((text("energy_performance_available_preferences") or "").split()),
    )


def no_policy(host: HostFiles) -> str:
    """Return the message for a host without cpufreq, and whether that is usual there."""
    return f"no cpufreq policy (usual in virtual machines{', and this is one' if host.is_virtual else ''})"
