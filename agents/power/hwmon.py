"""Energy and power sensors of boards, supplies and some CPUs: `class/hwmon`."""

import re
from typing import NamedTuple

from msgspec.structs import replace

from agents.host_files import Finding
from agents.power.domain import Domain, Reader, Reading, Role
from agents.power.files import read_number
from agents.power.host import Readable

HWMON = "sys/class/hwmon"

_MICRO = 1e-6
_MILLI_TIMES_MILLI = 1e-6
_MOST_SENSOR_WATTS = 20_000.0
_SHORTEST_S = 1.0

_CHANNEL = re.compile(r"(energy|power)(\d+)_(input|average)$")
_CPU_LABEL = re.compile(r"E(socket|core)0*(\d+)$")
_WHOLE_CHIPS: dict[str, tuple[Role, str]] = {"power_meter": ("board", "board"), "fam15h_power": ("package", "package")}
"""Chip -> role and name of its only channel: ACPI's power meter, and the power sensor of AMD's family 15h."""


class Channel(NamedTuple):
    """One sensor.

    Attributes:
        domain: the domain, with its path relative to the host's root.
        factor: watts per unit of a power sensor.
        current: path of the current sensor of a voltage-current pair; otherwise empty.
    """

    domain: Domain
    factor: float
    current: str = ""


class Hwmon(Reader):
    """Reader of all energy and power channels; whole packages or boards are the terms of the total."""

    name = "hwmon"

    def probe(self) -> Finding:
        channels = self._channels()
        if not channels:
            return Finding("absent", f"no power or energy sensor in /{HWMON}")
        faults = [wrong for channel in channels if (wrong := self.host.check_number(channel.domain.path))]
        if len(faults) == len(channels):
            return faults[0]
        readable = len(channels) - len(faults)
        return Finding("ok", f"{readable} of {len(channels)} sensors in /{HWMON} can be read")

    def open(self) -> None:
        self._held: list[tuple[Channel, Readable | None, Readable | None]] = []
        for channel in self._channels():
            if channel.domain.name not in self.settings.ignore:
                self._held.append(self._open(channel))
        if not self._held:
            raise OSError("no sensor is left")

    @property
    def domains(self) -> tuple[Domain, ...]:
        return tuple(channel.domain for channel, _, _ in self._held)

    def read(self) -> list[Reading]:
        return [self._read(*held) for held in self._held]

    def close(self) -> None:
        for _, *files in self._held:
            for file in files:
                if file is not None:
                    file.close()
        self._held = []

    def _open(self, channel: Channel) -> tuple[Channel, Readable | None, Readable | None]:
        try:
            first = self.host.meter(channel.domain.path)
            return channel, first, self.host.meter(channel.current) if channel.current else None
        except OSError as fault:
            domain = replace(channel.domain, reason=f"{channel.domain.name} cannot be opened: {fault}")
            return channel._replace(domain=domain), None, None

    def _read(self, channel: Channel, first: Readable | None, second: Readable | None) -> Reading:
        reading = read_number(self.host, channel.domain, first)
        if channel.domain.joules_per_count is not None or reading.value is None:
            return reading
        watts = reading.value * channel.factor
        if second is not None:
            current = read_number(self.host, channel.domain, second)
            if current.value is None:
                return current
            half_ns = (current.t_ns - reading.t_ns) // 2 + current.half_ns
            return Reading(channel.domain, reading.t_ns + half_ns, half_ns, watts * current.value)
        return reading._replace(value=watts)

    def _channels(self) -> list[Channel]:
        found: dict[str, Channel] = {}
        for device in self.host.names(HWMON):
            # Sorted, so that energy comes first, then the average, then the current value of the same sensor.
            for file in sorted(self.host.names(f"{HWMON}/{device}"), key=_rank):
                matched = _CHANNEL.fullmatch(file)
                if matched:
                    channel = self._channel(f"{HWMON}/{device}", file, matched)
                    found.setdefault(channel.domain.name, channel)
        for pair in self.settings.hwmon.pairs:
            domain = self._power(pair.name, "board", f"{HWMON}/{pair.voltage}")
            found[pair.name] = Channel(domain, _MILLI_TIMES_MILLI, f"{HWMON}/{pair.current}")
        return self._with_total(list(found.values()))

    def _channel(self, device: str, file: str, matched: re.Match[str]) -> Channel:
        kind, number, what = matched.groups()
        chip = self.host.read_if_there(f"{device}/name") or ""
        label = self.host.read_if_there(f"{device}/{kind}{number}_label") or ""
        role, name = self._role_and_name(device, chip, label, f"{kind}{number}")
        if kind == "energy":
            domain = Domain(name, role, self.name, f"{device}/{file}", False, _MICRO)
            return Channel(domain, 1.0)
        longest_s = _SHORTEST_S
        if what == "average":
            interval = self.host.read_if_there(f"{device}/power{number}_average_interval") or ""
            longest_s = max(_SHORTEST_S, 2 * int(interval) / 1000 if interval.isdigit() else 0.0)
        return Channel(replace(self._power(name, role, f"{device}/{file}"), longest_s=longest_s), _MICRO)

    def _role_and_name(self, device: str, chip: str, label: str, channel: str) -> tuple[Role, str]:
        of_cpu = _CPU_LABEL.fullmatch(label)
        if chip == "amd_energy" and of_cpu:
            number = int(of_cpu.group(2))
            return ("package", f"package-{number}") if of_cpu.group(1) == "socket" else ("core", f"core-{number}")
        if chip in _WHOLE_CHIPS:
            role, stem = _WHOLE_CHIPS[chip]
            alike = [d for d in self.host.names(HWMON) if self.host.read_if_there(f"{HWMON}/{d}/name") == chip]
            return role, f"{stem}-{alike.index(device.rpartition('/')[2])}"
        return "board", "/".join([chip or device.rpartition("/")[2], label or channel])

    def _power(self, name: str, role: Role, path: str) -> Domain:
        return Domain(name, role, self.name, path, False, most_watts=_MOST_SENSOR_WATTS)

    def _with_total(self, channels: list[Channel]) -> list[Channel]:
        """Mark the terms of the total: the operator's choice, else packages, else boards that include everything."""
        wanted = set(self.settings.hwmon.total)
        if not wanted:
            wanted = {c.domain.name for c in channels if c.domain.role == "package"}
        if not wanted:
            wanted = {c.domain.name for c in channels if c.domain.name.startswith("board-")}
        return [c._replace(domain=replace(c.domain, in_total=c.domain.name in wanted)) for c in channels]


def _rank(file: str) -> tuple[str, bool]:
    return file.partition("_")[0], file.endswith("_input")
