"""Selection of a node's energy source: the first reader that works, in order of preference."""

from collections.abc import Mapping
from typing import NamedTuple

from agents.host_files import Finding
from agents.power.battery import Battery
from agents.power.domain import Reader
from agents.power.external import External
from agents.power.host import MeteredHost
from agents.power.hwmon import Hwmon
from agents.power.model import ModelReader
from agents.power.perf import Perf
from agents.power.powertop import PowerTop
from agents.power.rapl import Rapl
from agents.power.settings import PowerSettings

READERS: Mapping[str, type[Reader]] = {
    reader.name: reader for reader in (Perf, Rapl, Hwmon, External, Battery, ModelReader)
}
"""Name -> reader, in order of preference."""

COUNTERS_OF_ONE_THING = (Perf.name, Rapl.name)
"""Two readers of the same counters: where both work, they are compared."""


class Sources(NamedTuple):
    """The open readers.

    Attributes:
        primary: the node's source; None when no reader works.
        check: another reader of the same counters, for the first minute; or None.
        beside: cross-checks that run all the time.
        findings: reader -> result of its probe.
    """

    primary: Reader | None
    check: Reader | None
    beside: tuple[Reader, ...]
    findings: Mapping[str, Finding]

    @property
    def opened(self) -> tuple[Reader, ...]:
        """All open readers, the primary one first."""
        return tuple(reader for reader in (self.primary, self.check, *self.beside) if reader is not None)

    @property
    def why_none(self) -> str:
        """Why there is no primary source, for each reader."""
        return "; ".join(f"{name}: {found.reason}" for name, found in self.findings.items())


def order(settings: PowerSettings) -> list[str]:
    """Return the readers that may be the source, in the order in which they are tried."""
    if settings.source is not None:
        return [settings.source] if settings.source in READERS else []
    return list(dict.fromkeys([*(name for name in settings.prefer if name in READERS), *READERS]))


def probe_all(host: MeteredHost, settings: PowerSettings) -> dict[str, Finding]:
    """Probe every reader, in the order in which they are tried, without opening any."""
    names = order(settings)
    names += [name for name in READERS if name not in names]
    found = {name: READERS[name](host, settings).probe() for name in names}
    return found | {PowerTop.name: PowerTop(host, settings).probe()}


def open_sources(host: MeteredHost, settings: PowerSettings) -> Sources:
    """Open the first reader that works, and its cross-checks.

    A reader that cannot be opened although its probe succeeded has the finding `unreadable`.
    """
    findings = probe_all(host, settings)
    working = [name for name in order(settings) if findings[name].status == "ok"]
    primary = check = None
    for name in working:
        if primary is None:
            primary = _open(READERS[name], host, settings, findings)
        elif {name, primary.name} == set(COUNTERS_OF_ONE_THING):
            check = _open(READERS[name], host, settings, findings)
    beside = [PowerTop] if settings.powertop and findings[PowerTop.name].status == "ok" else []
    opened = (_open(reader, host, settings, findings) for reader in beside)
    return Sources(primary, check, tuple(reader for reader in opened if reader), findings)


def _open(
    kind: type[Reader], host: MeteredHost, settings: PowerSettings, findings: dict[str, Finding]
) -> Reader | None:
    reader = kind(host, settings)
    try:
        reader.open()
    except OSError as fault:
        reader.close()
        findings[kind.name] = Finding("unreadable", str(fault))
        return None
    return reader
