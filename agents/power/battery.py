"""Discharge rate of a laptop's batteries: the power of the whole machine while it runs on battery."""

from agents.host_files import Finding
from agents.power.domain import Domain, Reader, Reading

SUPPLIES = "sys/class/power_supply"

_MICRO = 1e-6
_PICO = 1e-12
_MOST_WATTS = 500.0


class Battery(Reader):
    """Sum of the power of all discharging batteries, read as power, or as current and voltage.

    Firmware updates these values every 10 to 60 s: only intervals of minutes are meaningful.
    """

    name = "battery"

    def probe(self) -> Finding:
        batteries = self._batteries()
        if not batteries:
            return Finding("absent", f"no battery in /{SUPPLIES}")
        for name in batteries:
            folder = f"{SUPPLIES}/{name}"
            if self._status(name) != "Discharging":
                continue
            if self.host.exists(f"{folder}/power_now"):
                return self.host.check_number(f"{folder}/power_now") or Finding("ok", f"{name} reports its power")
            wrong = self.host.check_number(f"{folder}/current_now") or self.host.check_number(f"{folder}/voltage_now")
            return wrong or Finding("ok", f"{name} reports current and voltage")
        return Finding("absent", f"{', '.join(batteries)}: not discharging, so the power of the machine is unknown")

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
