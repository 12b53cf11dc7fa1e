"""Energy counters of the powercap framework: Intel's and AMD's running average power limit.

A zone is a folder of `class/powercap` with `name` and `energy_uj`. Its socket is in its name, never in the folder's
number: a platform zone may be numbered between sockets, and the numbers are hexadecimal. A zone without a socket in its
name belongs to the socket of its parent folder.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from agents.host_files import ProbeResult
from agents.power.reader import MOST_WATTS, Counters, Domain, MeteredHost, Reader, Reading, Role
from agents.power.settings import FEWEST_HZ

POWERCAP = "sys/class/powercap"

BASE_CONTROL = "intel-rapl"
"""Control type that is preferred when another one, `intel-rapl-mmio`, has the same domain."""

MODELLED = "modelled"
"""File beside the zones of emulated nodes, which no kernel has: their counters follow a model."""

READS_APART_S = 0.2
"""Time between the two reads that detect mirrors."""

LEAST_UNITS = 2
"""Values that differ by at most this number of units are equal."""

STILL_S = 1.0
"""A counter does not work if it stays at 0 for this time under load, or at any value while its twin advances."""

LIMIT_MARGIN = 2
"""Limits are kept on average over milliseconds to seconds: single steps may exceed them."""

MOST_OF_ANY_ZONE_WATTS = 4000.0
"""Highest power of a zone without limits whose counter has a larger range than it needs."""

SAMPLES_PER_RANGE = 4
"""At the lowest sampling rate, the highest power of a zone without limits must not need fewer samples than these."""

HINT = (
    "root may, or a group that a udev rule lets read it: the Ansible role `power` of `millrace provision` sets that up"
)
"""Hint for counters that may not be read by this user."""

_SOCKET = re.compile(r"package-\d+(-die-\d+)?$")
_LIMIT = re.compile(r"constraint_\d+_(power_limit|max_power)_uw")
_PLATFORM = re.compile(r"psys(-\d+)?$")
_ROLES: dict[str, Role] = {"dram": "dram", "core": "core", "uncore": "uncore"}
_NANO = 1000
_REGISTER = 2**32 - 1
_MOST_NANOJOULES = 10**9

PLATFORM = "psys"
_MICRO = 1e-6


class Zone(NamedTuple):
    """One zone.

    Attributes:
        folder: name of its folder, `intel-rapl:0:1`.
        path: path of the folder, relative to the host's root.
        domain: name of its domain, `dram/package-0`.
        role: role of the domain.
        raw_max: range of the counter in microjoules, or None.
        unit: smallest increment in microjoules, or None.
        most_watts: highest power that it can draw.
        modelled: whether its counter follows a model.
        fault: fault of its counter, or None.
    """

    folder: str
    path: str
    domain: str
    role: Role
    raw_max: int | None
    unit: float | None
    most_watts: float
    modelled: bool
    fault: ProbeResult | None

    @property
    def counter(self) -> str:
        """Path of its counter."""
        return f"{self.path}/energy_uj"

    @property
    def control(self) -> str:
        """Its control type."""
        return self.folder.partition(":")[0]


def find_zones(host: MeteredHost) -> list[Zone]:
    """Return all zones of CPU packages and platforms that have a counter, parents before children."""
    zones = (_zone(host, path) for path in sorted(_folders(host), key=_place))
    return [zone for zone in zones if zone is not None]


def reject(host: MeteredHost, zones: list[Zone]) -> dict[str, str]:
    """Return folder -> why that zone is left out: `duplicate of X`, `mirror of X` or `unreadable`.

    Of two zones with the same domain, one that works is kept; the other one is a duplicate, which may be unreadable.
    Takes 0.2 s, as much again when a domain has two zones, and a second when a counter does not work.
    """
    unreadable = {zone.folder for zone in zones if zone.fault}
    unreadable |= _still(host, [zone for zone in zones if zone.folder not in unreadable])
    rejected = dict.fromkeys(unreadable, "unreadable") | _duplicates(zones, unreadable)
    return rejected | _mirrors(host, [zone for zone in zones if zone.folder not in rejected])


def _folders(host: MeteredHost) -> Iterator[str]:
    """Yield every zone once: the kernel lists children beside their parents, recordings may list them inside only."""
    seen = set()
    waiting = [f"{POWERCAP}/{name}" for name in host.names(POWERCAP)]
    while waiting:
        path = waiting.pop(0)
        folder = path.rpartition("/")[2]
        if folder in seen:
            continue
        seen.add(folder)
        if host.exists(f"{path}/name") and host.exists(f"{path}/energy_uj"):
            yield path
        waiting += [f"{path}/{name}" for name in host.names(path) if name.startswith(f"{folder}:")]


def _place(path: str) -> tuple[str, list[int]]:
    control, *numbers = path.rpartition("/")[2].split(":")
    return control, [int(number, 16) if re.fullmatch("[0-9a-f]+", number) else -1 for number in numbers]


def _zone(host: MeteredHost, path: str) -> Zone | None:
    folder = path.rpartition("/")[2]
    name = host.read_if_there(f"{path}/name") or ""
    role: Role | None = _ROLES.get(name)
    if _SOCKET.match(name):
        role = "package"
    elif _PLATFORM.match(name):
        role = "platform"
    if role is None:
        return None
    domain = name if role in ("package", "platform") else f"{name}/{_parent(host, path)}"
    raw_max = _number(host, f"{path}/max_energy_range_uj")
    return Zone(
        folder,
        path,
        domain,
        role,
        raw_max,
        None if raw_max is None else _unit(raw_max),
        _most_watts(host, path, raw_max),
        host.exists(f"{POWERCAP}/{folder.partition(':')[0]}/{MODELLED}"),
        host.check_number(f"{path}/energy_uj"),
    )


def _parent(host: MeteredHost, path: str) -> str:
    above, _, folder = path.rpartition("/")
    parent = folder.rpartition(":")[0]
    for candidate in (above, f"{above}/{parent}"):
        if candidate.endswith(f"/{parent}"):
            return host.read_if_there(f"{candidate}/name") or parent
    return parent


def _most_watts(host: MeteredHost, path: str, raw_max: int | None) -> float:
    """Return the highest power that a zone can draw, from its limits, else from the range of its counter.

    The design power, `max_power`, is no limit: turbo exceeds it several times, unless there are limits.
    """
    limits: dict[str, list[int]] = {"power_limit": [], "max_power": []}
    for file in host.names(path):
        if matched := _LIMIT.fullmatch(file):
            limits[matched[1]].append(_number(host, f"{path}/{file}") or 0)
    limited = any(limits["power_limit"]) and host.read_if_there(f"{path}/enabled") != "0"
    if limited:
        return LIMIT_MARGIN * max(limits["power_limit"] + limits["max_power"]) * _MICRO
    countable = (raw_max or 0) * _MICRO * FEWEST_HZ / SAMPLES_PER_RANGE
    return max(MOST_WATTS, min(countable, MOST_OF_ANY_ZONE_WATTS))


def _number(host: MeteredHost, path: str) -> int | None:
    text = host.read_if_there(path) or ""
    return int(text) if text.isdigit() and int(text) > 0 else None


def _unit(raw_max: int) -> float | None:
    """Return the unit of a 32-bit register, which the kernel rounds to nanojoules; None for any other range."""
    nanojoules = round(raw_max * _NANO / _REGISTER)
    return (
        nanojoules / _NANO
        if 0 < nanojoules <= _MOST_NANOJOULES and _REGISTER * nanojoules // _NANO == raw_max
        else None
    )


def _duplicates(zones: list[Zone], unreadable: set[str]) -> dict[str, str]:
    """Find domains in two control types; one that works is kept, preferably that of the model-specific registers."""
    kept: dict[str, Zone] = {}
    duplicates = {}
    for zone in sorted(zones, key=lambda zone: (zone.folder in unreadable, zone.control != BASE_CONTROL)):
        other = kept.setdefault(zone.domain, zone)
        if other is not zone:
            duplicates[zone.folder] = f"duplicate of {other.folder}" + (
                ", and unreadable" if zone.folder in unreadable else ""
            )
    return duplicates


def _mirrors(host: MeteredHost, zones: list[Zone]) -> dict[str, str]:
    """Find zones of one role and socket with the same advancing values at two times: all but the first.

    The first is read before and after the others, because counters advance in the meantime. Counters that do not
    advance cannot be compared; they do not contribute to the total either.
    """
    groups: dict[tuple[Role, str], list[Zone]] = {}
    for zone in zones:
        socket = zone.domain.rpartition("/")[2].partition("-die-")[0]
        groups.setdefault((zone.role, socket), []).append(zone)
    pairs = [(first, other) for first, *others in groups.values() for other in others]
    pairs = [(first, other) for first, other in pairs if _agree(host, first, other)]
    if pairs:
        before = {first.folder: _number(host, first.counter) for first, _ in pairs}
        host.wait(READS_APART_S)
        pairs = [(first, other) for first, other in pairs if _agree(host, first, other)]
        pairs = [(first, other) for first, other in pairs if _number(host, first.counter) != before[first.folder]]
    mirrors: dict[str, str] = {}
    for first, other in pairs:
        mirrors.setdefault(other.folder, f"mirror of {first.folder}")
    return mirrors


def _agree(host: MeteredHost, first: Zone, other: Zone) -> bool:
    before, value, after = (_number(host, zone.counter) for zone in (first, other, first))
    if before is None or value is None or after is None:
        return False
    slack = LEAST_UNITS * (first.unit or 1)
    return before - slack <= value <= after + slack


def _still(host: MeteredHost, zones: list[Zone]) -> set[str]:
    """Return the zones that stay at 0 under CPU load, or at any value while another zone of their domain advances."""
    first = {zone.folder: _number(host, zone.counter) for zone in zones}
    domains = [zone.domain for zone in zones]
    still = [zone for zone in zones if first[zone.folder] is None or domains.count(zone.domain) > 1]
    spent_s = 0.0
    while still and spent_s < STILL_S:
        host.work(READS_APART_S)
        spent_s += READS_APART_S
        still = [zone for zone in still if _number(host, zone.counter) in (None, first[zone.folder])]
    advancing = {zone.domain for zone in zones if zone not in still}
    return {zone.folder for zone in still if first[zone.folder] is None or zone.domain in advancing}


class JudgedZone(NamedTuple):
    """A zone, why it is left out (None when it is not), and whether it is a term of the total."""

    zone: Zone
    rejected: str | None
    in_total: bool


class Rapl(Reader):
    """Reader of `energy_uj` of every zone that is not a duplicate."""

    name = "rapl"
    total_key = "psys by `platform: true`"

    def probe(self) -> ProbeResult:
        zones = find_zones(self.host)
        if not zones:
            usual = " (usual in virtual machines, and this is one)" if self.host.is_virtual else ""
            return ProbeResult("absent", f"no zone with an energy counter in /{POWERCAP}{usual}")
        faults = [zone.fault for zone in zones if zone.fault]
        if len(faults) < len(zones):
            modelled = "; they follow a model, and nothing is measured" if any(zone.modelled for zone in zones) else ""
            readable = len(zones) - len(faults)
            return ProbeResult("ok", f"{readable} of {len(zones)} energy counters in /{POWERCAP} can be read{modelled}")
        worst = next((fault for fault in faults if fault.status == "denied"), faults[0])
        return ProbeResult("denied", f"{worst.reason}; {HINT}") if worst.status == "denied" else worst

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
