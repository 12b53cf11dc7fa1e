"""Energy events of the kernel's `power` PMU: 64-bit counters that the kernel unwraps, with a unit that it states."""

import re
import sys

from agents.host_files import ProbeResult
from agents.power.reader import Domain, Readable, Reader, Reading, Role

PMU = "sys/bus/event_source/devices/power"
PARANOID = "proc/sys/kernel/perf_event_paranoid"
TOPOLOGY = "sys/devices/system/cpu/cpu{cpu}/topology/{what}"

_CAP_SYS_ADMIN, _CAP_PERFMON = 21, 38

_ROLES: dict[str, tuple[Role, str]] = {
    "energy-pkg": ("package", "{package}"),
    "energy-ram": ("dram", "dram/{package}"),
    "energy-cores": ("core", "core/{package}"),
    "energy-gpu": ("uncore", "uncore/{package}"),
    "energy-psys": ("platform", "psys"),
}
"""Event -> role, and name of the domain."""


class Perf(Reader):
    """Reader of each event once per socket or die, on the CPUs in the PMU's `cpumask`."""

    name = "perf"
    total_key = "psys by `platform: true`"

    def probe(self) -> ProbeResult:
        events = self._events()
        if not events:
            return ProbeResult("absent", f"no energy event in /{PMU}")
        wrong = self.host.check_number(f"{PMU}/type")
        if wrong:
            return wrong
        paranoid = self.host.read_if_there(PARANOID)
        if not (self._has_capability() or (paranoid is not None and re.fullmatch(r"0|-\d+", paranoid))):
            return ProbeResult("denied", f"needs CAP_PERFMON, or kernel.perf_event_paranoid <= 0 (it is {paranoid})")
        recorded = "; they cannot be counted in a recording" if self.host.is_recorded else ""
        return ProbeResult("ok", f"events {', '.join(events)}{recorded}")

    def open(self) -> None:
        self._held: list[tuple[Domain, Readable]] = []
        try:
            kind = int(self.host.read(f"{PMU}/type"))
            cpus = _numbers(self.host.read(f"{PMU}/cpumask"))
            self._open_events(kind, cpus)
        except (OSError, ValueError) as fault:
            raise OSError(f"the energy events of /{PMU} cannot be opened: {fault}") from fault

    @property
    def domains(self) -> tuple[Domain, ...]:
        return tuple(domain for domain, _ in self._held)

    def read(self) -> list[Reading]:
        readings = []
        for domain, event in self._held:
            before = self.host.monotonic_ns()
            try:
                # Only differences matter, and the kernel's counters are signed.
                value, reason = int.from_bytes(event.read(), sys.byteorder, signed=True), ""
            except OSError as fault:
                value, reason = None, f"the event of {domain.name} cannot be read: {fault.strerror or fault}"
            after = self.host.monotonic_ns()
            readings.append(Reading(domain, (before + after) // 2, (after - before + 1) // 2, value, reason))
        return readings

    def close(self) -> None:
        for _, event in self._held:
            event.close()
        self._held = []

    def _events(self) -> list[str]:
        return [name for name in self.host.names(f"{PMU}/events") if name.startswith("energy-") and "." not in name]

    def _open_events(self, kind: int, cpus: list[int]) -> None:
        for name in self._events():
            role, pattern = _ROLES.get(name, (None, ""))
            if role is None:
                continue
            config = self._config(self.host.read(f"{PMU}/events/{name}"))
            scale = float(self.host.read(f"{PMU}/events/{name}.scale"))
            for cpu in cpus[:1] if role == "platform" else cpus:
                domain = pattern.format(package=self._package(cpu, cpus))
                if domain in self.settings.ignore:
                    continue
                in_total = role == "platform" if self.settings.platform else role in ("package", "dram")
                path = f"{PMU}/events/{name}"
                opened = self.host.perf_event(kind, config, cpu)
                self._held.append((Domain(domain, role, self.name, path, in_total, scale, unit=1), opened))

    def _config(self, event: str) -> int:
        """Return the kernel's config value of a term such as `event=0x02`, in the bits of the PMU's format."""
        config = 0
        for term in event.split(","):
            key, _, value = term.partition("=")
            where = self.host.read_if_there(f"{PMU}/format/{key}") or "config:0-63"
            place = re.fullmatch(r"config:(\d+)(?:-\d+)?", where)
            if place is None:
                raise ValueError(f"/{PMU}/format/{key} holds {where!r}")
            config |= int(value or "1", 0) << int(place.group(1))
        return config

    def _package(self, cpu: int, cpus: list[int]) -> str:
        """Return `package-0`, or `package-0-die-1` where each die of a socket is counted."""
        sockets = {other: self._number(other, "physical_package_id") for other in cpus}
        name = f"package-{sockets[cpu]}"
        if list(sockets.values()).count(sockets[cpu]) > 1:
            name += f"-die-{self._number(cpu, 'die_id')}"
        return name

    def _number(self, cpu: int, what: str) -> int:
        text = self.host.read_if_there(TOPOLOGY.format(cpu=cpu, what=what)) or "0"
        return int(text)

    def _has_capability(self) -> bool:
        status = self.host.read_if_there("proc/self/status") or ""
        held = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:")]
        return bool(held) and any(held[0] >> number & 1 for number in (_CAP_PERFMON, _CAP_SYS_ADMIN))


def _numbers(mask: str) -> list[int]:
    """Parse a list such as `0,18-19`."""
    numbers = []
    for part in mask.split(","):
        first, _, last = part.partition("-")
        numbers += list(range(int(first), int(last or first) + 1))
    return numbers
