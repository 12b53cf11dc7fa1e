"""Energy counters of the powercap framework: Intel's and AMD's running average power limit."""

from typing import NamedTuple

from agents.host_files import Finding
from agents.power.domain import Domain, Reader, Reading
from agents.power.files import Counters
from agents.power.zones import HINT, POWERCAP, Zone, find_zones, reject

PLATFORM = "psys"
_MICRO = 1e-6


class JudgedZone(NamedTuple):
    """A zone, why it is left out (None when it is not), and whether it is a term of the total."""

    zone: Zone
    rejected: str | None
    in_total: bool


class Rapl(Reader):
    """Reader of `energy_uj` of every zone that is not a duplicate."""

    name = "rapl"

    def probe(self) -> Finding:
        zones = find_zones(self.host)
        if not zones:
            usual = " (usual in virtual machines, and this is one)" if self.host.is_virtual else ""
            return Finding("absent", f"no zone with an energy counter in /{POWERCAP}{usual}")
        faults = [zone.fault for zone in zones if zone.fault]
        if len(faults) < len(zones):
            modelled = "; they follow a model, and nothing is measured" if any(zone.modelled for zone in zones) else ""
            readable = len(zones) - len(faults)
            return Finding("ok", f"{readable} of {len(zones)} energy counters in /{POWERCAP} can be read{modelled}")
        worst = next((fault for fault in faults if fault.status == "denied"), faults[0])
        return Finding("denied", f"{worst.reason}; {HINT}") if worst.status == "denied" else worst

    def judge(self) -> list[JudgedZone]:
        """Return all zones; may take a second, because some duplicates are found only by observation."""
        zones = find_zones(self.host)
        rejected = reject(self.host, zones)
        return [
            JudgedZone(zone, rejected.get(zone.folder), zone.folder not in rejected and self._is_term(zone))
            for zone in zones
        ]

    def open(self) -> None:
        self._files = Counters(self.host)
        # A CPU with SGX may add noise to its counters.
        filtered = ("filtered",) if "sgx" in self.host.cpu_flags() else ()
        for zone, rejected, in_total in self.judge():
            if zone.domain not in self.settings.ignore and not (rejected or "").startswith("duplicate"):
                self._files.add(_domain(zone, rejected, in_total, filtered, self._is_term(zone)))
        if not self._files.domains:
            raise OSError("no zone is left")

    @property
    def domains(self) -> tuple[Domain, ...]:
        return self._files.domains

    def read(self) -> list[Reading]:
        return self._files.read()

    def close(self) -> None:
        self._files.close()

    def _is_term(self, zone: Zone) -> bool:
        if self.settings.platform:
            # Platform zones of other sockets, `psys-1`, are only recorded; the first one covers the machine.
            return zone.domain == PLATFORM
        return zone.role in ("package", "dram") and zone.domain not in self.settings.ignore


def _domain(zone: Zone, rejected: str | None, in_total: bool, flags: tuple[str, ...], is_term: bool) -> Domain:
    reason = ""
    if zone.modelled:
        flags += ("modelled",)
    if rejected == "unreadable":
        # An unreadable term makes the total unknown: without it the sum would be too small.
        in_total = is_term
        reason = zone.fault.reason if zone.fault else "its counter stays at 0"
    elif rejected is not None:
        flags += ("mirror",)
    return Domain(
        name=zone.domain,
        role=zone.role,
        source=Rapl.name,
        path=zone.counter,
        in_total=in_total,
        joules_per_count=_MICRO,
        raw_max=zone.raw_max,
        unit=zone.unit,
        most_watts=zone.most_watts,
        flags=flags,
        reason=reason,
    )
