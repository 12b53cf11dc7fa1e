"""What this machine can do for a campaign, as one document. Nothing is changed, and nothing is tried."""

from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version

from msgspec import Struct

from agents.host_probes import CHECKS, program
from agents.power_probes import READERS
from agents.probing import Finding, HostFiles, Status
from analysis.java import MISSING, find_java


class Reader(Struct, frozen=True):
    """One source of energy readings."""

    reader: str
    status: Status
    reason: str


class Check(Struct, frozen=True):
    """One ability of the host."""

    check: str
    status: Status
    reason: str


class Power(Struct, frozen=True):
    """The energy readers in order of preference.

    Attributes:
        primary: the first that works; None when this host has no energy source.
        zones: the counters of the readers; empty as long as no reader is opened.
    """

    primary: str | None
    readers: list[Reader]
    zones: list[str] = []


class Diagnosis(Struct, frozen=True):
    """All findings."""

    power: Power
    checks: list[Check]


def _java() -> Finding:
    java = find_java()
    return Finding("ok", str(java)) if java else Finding("absent", MISSING)


def _spark() -> Finding:
    try:
        return Finding("ok", f"pyspark {version('pyspark')}")
    except PackageNotFoundError:
        return Finding(
            "absent", "pyspark is not installed: a node needs none, a controller installs millrace[controller]"
        )


SOFTWARE: Mapping[str, Callable[[], Finding]] = {
    "java": _java,
    "spark": _spark,
    "ssh": lambda: program("ssh", "nodes on other machines cannot be reached (Debian: apt install openssh-client)"),
    "sshd": lambda: program("sshd", "this machine cannot be a node of a lab (Debian: apt install openssh-server)"),
}
"""Name -> check of what is installed here, whatever root the hardware's files are read from."""


def diagnose(host: HostFiles) -> Diagnosis:
    """Ask every probe."""
    readers = [Reader(name, found.status, found.reason) for name, probe in READERS.items() if (found := probe(host))]
    primary = next((r.reader for r in readers if r.status == "ok"), None)
    software = [Check(name, found.status, found.reason) for name, check in SOFTWARE.items() if (found := check())]
    hardware = [Check(name, found.status, found.reason) for name, probe in CHECKS.items() if (found := probe(host))]
    return Diagnosis(Power(primary, readers), software + hardware)
