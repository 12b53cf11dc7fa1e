"""Report of what this machine supports, as one document; nothing is changed."""

from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version

from msgspec import Struct

from agents.host.probes import CHECKS, program
from agents.host_files import ProbeResult, Status
from agents.power.metering import find_primary, probe_all
from agents.power.rapl import Rapl
from agents.power.reader import MeteredHost
from agents.power.reader import Reader as Meter
from agents.power.settings import PowerSettings, meter_settings
from agents.power.sysfs_sensors import Battery, Hwmon
from analysis.tables.java import MISSING, find_java


class ReaderStatus(Struct, frozen=True):
    """Status of one source of energy readings."""

    reader: str
    status: Status
    reason: str


class FeatureStatus(Struct, frozen=True):
    """Status of one feature of the host."""

    check: str
    status: Status
    reason: str


class ZoneStatus(Struct, frozen=True):
    """Metered domain.

    Attributes:
        path: folder of a powercap zone, or file of another source; from the host's root.
        domain: name such as `package-0` or `dram/package-0`.
        role: what the domain covers.
        in_total: whether it is a term of the node's total.
        rejected: None, `mirror of X`, `duplicate of X` or `unreadable`.
    """

    path: str
    domain: str
    role: str
    in_total: bool
    rejected: str | None


class Power(Struct, frozen=True):
    """Energy readers in order of preference.

    Attributes:
        primary: the first that has the node's total, else the first that works; None without an energy source.
        zones: powercap zones; without any, the domains of the primary reader.
    """

    primary: str | None
    readers: list[ReaderStatus]
    zones: list[ZoneStatus]


class Diagnosis(Struct, frozen=True):
    """All findings."""

    power: Power
    checks: list[FeatureStatus]


def _java() -> ProbeResult:
    java = find_java()
    return ProbeResult("ok", str(java)) if java else ProbeResult("absent", MISSING)


def _spark() -> ProbeResult:
    try:
        return ProbeResult("ok", f"pyspark {version('pyspark')}")
    except PackageNotFoundError:
        return ProbeResult(
            "absent", "pyspark is not installed; only a controller needs it: install millrace[controller]"
        )


SOFTWARE: Mapping[str, Callable[[], ProbeResult]] = {
    "java": _java,
    "spark": _spark,
    "ssh": lambda: program("ssh", "nodes on other machines cannot be reached (Debian: apt install openssh-client)"),
    "sshd": lambda: program("sshd", "this machine cannot be a node of a lab (Debian: apt install openssh-server)"),
}
"""Name -> check of installed software; independent of the root that hardware files are read from."""


FILED: Mapping[str | None, type[Meter]] = {Hwmon.name: Hwmon, Battery.name: Battery}
"""Readers of files, which can be opened without side effects to list their domains."""


def diagnose(host: MeteredHost) -> Diagnosis:
    """Run every probe; takes about a second if counters must be observed.

    Raises:
        InputError: the settings of the host's meters are wrong.
    """
    settings = meter_settings(host)
    findings = probe_all(host, settings)
    primary = find_primary(host, settings, findings)
    readers = [ReaderStatus(name, finding.status, finding.reason) for name, finding in findings.items()]
    software = [
        FeatureStatus(name, finding.status, finding.reason) for name, check in SOFTWARE.items() if (finding := check())
    ]
    hardware = [
        FeatureStatus(name, finding.status, finding.reason)
        for name, probe in CHECKS.items()
        if (finding := probe(host))
    ]
    return Diagnosis(Power(primary, readers, _zones(host, settings, primary)), software + hardware)


def _zones(host: MeteredHost, settings: PowerSettings, primary: str | None) -> list[ZoneStatus]:
    judged = Rapl(host, settings).judge()
    if judged or primary not in FILED:
        return [ZoneStatus(f"/{j.zone.path}", j.zone.domain, j.zone.role, j.in_total, j.rejected) for j in judged]
    reader = FILED[primary](host, settings)
    try:
        reader.open()
        return [
            ZoneStatus(f"/{d.path}", d.name, d.role, d.in_total, "unreadable" if d.reason else None)
            for d in reader.domains
        ]
    except OSError:
        return []
    finally:
        reader.close()
