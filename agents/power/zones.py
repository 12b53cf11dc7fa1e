"""Which counters of `class/powercap` there are, what they count, and which are the same thing twice.

A zone is a folder with `name` and `energy_uj`. Its socket is in its name, never in the folder's number: a platform zone
may sit between sockets, and the numbers are hexadecimal. A zone without a socket of its own belongs to the folder that
it is a child of.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from agents.host_files import Finding
from agents.power.domain import MOST_WATTS, Role
from agents.power.host import MeteredHost

POWERCAP = "sys/class/powercap"

BASE_CONTROL = "intel-rapl"
"""The control type that is kept when another one, `intel-rapl-mmio`, shows the same domain."""

MODELLED = "modelled"
"""A file beside zones that no kernel has: their counters follow a model, as those of an emulated node do."""

LOOKS_APART_S = 0.2
"""Mirrors are looked at twice."""

LEAST_UNITS = 2
"""Values that differ by no more are the same."""

AT_ZERO_S = 1.0
"""A counter that stays at 0 for so long under load does not count."""

HINT = (
    "root may, or a group that a udev rule lets read it: the Ansible role `power` of `millrace provision` sets that up"
)
"""What helps when a counter may not be read."""

_SOCKET = re.compile(r"package-\d+(-die-\d+)?$")
_PLATFORM = re.compile(r"psys(-\d+)?$")
_ROLES: dict[str, Role] = {"dram": "dram", "core": "core", "uncore": "uncore"}
_NANO = 1000
_REGISTER = 2**32 - 1
_MOST_NANOJOULES = 10**9


class Zone(NamedTuple):
    """One zone, as found.

    Attributes:
        folder: its folder's name, `intel-rapl:0:1`.
        path: the folder, from the host's root.
        domain: `dram/package-0`.
        role: what it counts.
        raw_max: its range in microjoules, or None.
        unit: microjoules that it goes up by at least, or None.
        most_watts: what it can draw.
        modelled: whether its counter follows a model.
        fault: what is wrong with its counter, or None.
    """

    folder: str
    path: str
    domain: str
    role: Role
    raw_max: int | None
    unit: float | None
    most_watts: float
    modelled: bool
    fault: Finding | None

    @property
    def counter(self) -> str:
        """Path of its counter."""
        return f"{self.path}/energy_uj"


def find_zones(host: MeteredHost) -> list[Zone]:
    """All zones of CPU packages and platforms that have a counter, parents before children."""
    found = (_zone(host, path) for path in sorted(_folders(host), key=_place))
    return [zone for zone in found if zone is not None]


def reject(host: MeteredHost, zones: list[Zone]) -> dict[str, str]:
    """Folder -> why that zone is left out: `duplicate of X`, `mirror of X` or `unreadable`.

    Takes a fifth of a second, and one second more when a counter is at 0.
    """
    rejected = {zone.folder: "unreadable" for zone in zones if zone.fault}
    rejected |= _duplicates([zone for zone in zones if zone.folder not in rejected])
    left = [zone for zone in zones if zone.folder not in rejected]
    rejected |= dict.fromkeys(_at_zero(host, left), "unreadable")
    return rejected | _mirrors(host, [zone for zone in left if zone.folder not in rejected])


def _folders(host: MeteredHost) -> Iterator[str]:
    """Every zone once: the kernel lists children beside their parents, a recording may have them inside only."""
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
    limit = _number(host, f"{path}/constraint_0_max_power_uw")
    return Zone(
        folder,
        path,
        domain,
        role,
        raw_max,
        None if raw_max is None else _unit(raw_max),
        2 * limit / 1e6 if limit else MOST_WATTS,
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


def _number(host: MeteredHost, path: str) -> int | None:
    text = host.read_if_there(path) or ""
    return int(text) if text.isdigit() and int(text) > 0 else None


def _unit(raw_max: int) -> float | None:
    """The unit of a register of 32 bits, which the kernel keeps in whole nanojoules; None for any other range."""
    nanojoules = round(raw_max * _NANO / _REGISTER)
    return (
        nanojoules / _NANO
        if 0 < nanojoules <= _MOST_NANOJOULES and _REGISTER * nanojoules // _NANO == raw_max
        else None
    )


def _duplicates(zones: list[Zone]) -> dict[str, str]:
    """The same domain in two trees: the one of the model-specific registers is kept."""
    kept: dict[str, Zone] = {}
    found = {}
    for zone in sorted(zones, key=lambda zone: zone.folder.partition(":")[0] != BASE_CONTROL):
        other = kept.setdefault(zone.domain, zone)
        if other is not zone:
            found[zone.folder] = f"duplicate of {other.folder}"
    return found


def _mirrors(host: MeteredHost, zones: list[Zone]) -> dict[str, str]:
    """Zones of one role and socket that show the same values at two instants, and count: all but the first.

    The first is read before and after the others, since counters go on meanwhile. Of counters that stand still nothing
    is known; they add nothing as long as they do.
    """
    groups: dict[tuple[Role, str], list[Zone]] = {}
    for zone in zones:
        socket = zone.domain.rpartition("/")[2].partition("-die-")[0]
        groups.setdefault((zone.role, socket), []).append(zone)
    pairs = [(first, other) for first, *others in groups.values() for other in others]
    pairs = [(first, other) for first, other in pairs if _agree(host, first, other)]
    if pairs:
        before = {first.folder: _number(host, first.counter) for first, _ in pairs}
        host.wait(LOOKS_APART_S)
        pairs = [(first, other) for first, other in pairs if _agree(host, first, other)]
        pairs = [(first, other) for first, other in pairs if _number(host, first.counter) != before[first.folder]]
    found: dict[str, str] = {}
    for first, other in pairs:
        found.setdefault(other.folder, f"mirror of {first.folder}")
    return found


def _agree(host: MeteredHost, first: Zone, other: Zone) -> bool:
    before, value, after = (_number(host, zone.counter) for zone in (first, other, first))
    if before is None or value is None or after is None:
        return False
    slack = LEAST_UNITS * (first.unit or 1)
    return before - slack <= value <= after + slack


def _at_zero(host: MeteredHost, zones: list[Zone]) -> list[str]:
    """The zones that stay at 0 while a CPU works."""
    idle = [zone for zone in zones if _number(host, zone.counter) is None]
    spent_s = 0.0
    while idle and spent_s < AT_ZERO_S:
        host.work(LOOKS_APART_S)
        spent_s += LOOKS_APART_S
        idle = [zone for zone in idle if _number(host, zone.counter) is None]
    return [zone.folder for zone in idle]
