"""Power sensors in sysfs: of boards, supplies and some CPUs (`class/hwmon`), and of batteries (`class/power_supply`).

The discharge rate of a laptop's batteries is the power of the whole machine while it runs on battery.
"""

import re
from typing import NamedTuple

from msgspec.structs import replace

from agents.host_files import ProbeResult
from agents.power.reader import Domain, Readable, Reader, Reading, Role, read_number

HWMON = "sys/class/hwmon"

_MICRO = 1e-6
_MILLI_TIMES_MILLI = 1e-6
_MOST_SENSOR_WATTS = 20_000.0
_SHORTEST_S = 1.0

_CHANNEL = re.compile(r"(energy|power)(\d+)_(input|average)$")
_CPU_LABEL = re.compile(r"E(socket|core)0*(\d+)$")
_WHOLE_CHIPS: dict[str, tuple[Role, str]] = {"power_meter": ("board", "board"), "fam15h_power": ("package", "package")}
"""Chip -> role and name of its only channel: ACPI's power meter, and the power sensor of AMD's family 15h."""

SUPPLIES = "sys/class/power_supply"

_PICO = 1e-12
_MOST_WATTS = 500.0


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
    total_key = "its domains by `hwmon: total`"

    def probe(self) -> ProbeResult:
        channels = self._channels()
        if not channels:
            return ProbeResult("absent", f"no power or energy sensor in /{HWMON}")
        faults = [wrong for channel in channels if (wrong := self.host.check_number(channel.domain.path))]
        if len(faults) == len(channels):
            return faults[0]
        readable = len(channels) - len(faults)
        return ProbeResult("ok", f"{readable} of {len(channels)} sensors in /{HWMON} can be read")

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
        channels: dict[str, Channel] = {}
        for device in self.host.names(HWMON):
            # Sorted, so that energy comes first, then the average, then the current value of the same sensor.
            for file in sorted(self.host.names(f"{HWMON}/{device}"), key=_rank):
                matched = _CHANNEL.fullmatch(file)
                if matched:
                    channel = self._channel(f"{HWMON}/{device}", file, matched)
                    channels.setdefault(channel.domain.name, channel)
        for pair in self.settings.hwmon.pairs:
            domain = self._power(pair.name, "board", f"{HWMON}/{pair.voltage}")
            channels[pair.name] = Channel(domain, _MILLI_TIMES_MILLI, f"{HWMON}/{pair.current}")
        return self._with_total(list(channels.values()))

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


class Battery(Reader):
    """Sum of the power of all discharging batteries, read as power, or as current and voltage.

    Firmware updates these values every 10 to 60 s: only intervals of minutes are meaningful.
    """

    name = "battery"

    def probe(self) -> ProbeResult:
        batteries = self._batteries()
        if not batteries:
            return ProbeResult("absent", f"no battery in /{SUPPLIES}")
        for name in batteries:
            folder = f"{SUPPLIES}/{name}"
            if self._status(name) != "Discharging":
                continue
            if self.host.exists(f"{folder}/power_now"):
                return self.host.check_number(f"{folder}/power_now") or ProbeResult("ok", f"{name} reports its power")
            wrong = self.host.check_number(f"{folder}/current_now") or self.host.check_number(f"{folder}/voltage_now")
            return wrong or ProbeResult("ok", f"{name} reports current and voltage")
        return ProbeResult("absent", f"{', '.join(batteries)}: not discharging, so the power of the machine is unknown")

    def open(self) -> None:
        if not self._batteries():
            raise OSError(f"no battery in /{SUPPLIES}")
        self._domain = Domain("battery", "board", self.name, SUPPLIES, True, most_watts=_MOST_WATTS)

    @property
    def domains(self) -> tuple[Domain, ...]:
        return (self._domain,)

    def read(self) -> list[Reading]:
        before = self.host.monotonic_ns()
        watts: float | None = None
        reason = ""
        charging = False
        try:
            batteries = self._batteries()
            states = {name: self._status(name) for name in batteries}
            discharging = [name for name, status in states.items() if status == "Discharging"]
            if discharging:
                watts = sum(self._watts(name) for name in discharging)
            else:
                charging = True
                reason = ", ".join(f"{name} is {status.lower()}" for name, status in states.items()) or "it is gone"
        except OSError as fault:
            reason = f"{fault.filename or SUPPLIES} cannot be read: {fault.strerror}"
        except ValueError as fault:
            reason = f"a battery reports an invalid value: {fault}"
        after = self.host.monotonic_ns()
        half_ns = (after - before + 1) // 2
        return [Reading(self._domain, (before + after) // 2, half_ns, watts, reason, charging=charging)]

    def close(self) -> None:
        """Do nothing: no file is kept open, because a battery may be removed."""

    def _watts(self, name: str) -> float:
        folder = f"{SUPPLIES}/{name}"
        # Some firmware reports discharge as a negative value.
        if self.host.exists(f"{folder}/power_now"):
            return abs(int(self.host.read(f"{folder}/power_now"))) * _MICRO
        current = abs(int(self.host.read(f"{folder}/current_now")))
        return current * int(self.host.read(f"{folder}/voltage_now")) * _PICO

    def _status(self, name: str) -> str:
        return self.host.read_if_there(f"{SUPPLIES}/{name}/status") or "unknown"

    def _batteries(self) -> list[str]:
        """Return the machine's batteries; that of a mouse has the scope `Device`."""
        return [
            name
            for name in self.host.names(SUPPLIES)
            if self.host.read_if_there(f"{SUPPLIES}/{name}/type") == "Battery"
            and self.host.read_if_there(f"{SUPPLIES}/{name}/scope") != "Device"
        ]
