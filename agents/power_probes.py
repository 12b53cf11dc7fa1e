"""Which sources of energy readings this host has, one probe per reader."""

from collections.abc import Callable, Mapping

from agents.probing import Finding, HostFiles

POWERCAP = "sys/class/powercap"
POWER_PMU = "sys/bus/event_source/devices/power"
HWMON = "sys/class/hwmon"
SUPPLIES = "sys/class/power_supply"

CAP_SYS_ADMIN, CAP_PERFMON = 21, 38


def rapl(host: HostFiles) -> Finding:
    """Energy counters of the powercap framework."""
    counters = [
        f"{POWERCAP}/{zone}/energy_uj"
        for zone in host.names(POWERCAP)
        if host.exists(f"{POWERCAP}/{zone}/name") and host.exists(f"{POWERCAP}/{zone}/energy_uj")
    ]
    if not counters:
        return Finding("absent", "no zone with an energy counter in /sys/class/powercap")
    return _best(host, counters, "energy counters in /sys/class/powercap")


def perf(host: HostFiles) -> Finding:
    """Energy events of the kernel's `power` PMU."""
    events = [name for name in host.names(f"{POWER_PMU}/events") if name.startswith("energy-") and "." not in name]
    if not events:
        return Finding("absent", "no energy event in /sys/bus/event_source/devices/power")
    wrong = host.check_number(f"{POWER_PMU}/type")
    if wrong:
        return wrong
    paranoid = host.read_if_there("proc/sys/kernel/perf_event_paranoid")
    if not (_has_capability(host, CAP_PERFMON, CAP_SYS_ADMIN) or (paranoid is not None and _at_most_0(paranoid))):
        return Finding("denied", f"needs CAP_PERFMON, or kernel.perf_event_paranoid <= 0 (it is {paranoid})")
    return Finding("ok", f"events {', '.join(events)}")


def hwmon(host: HostFiles) -> Finding:
    """Power and energy sensors of boards and supplies."""
    found = [
        f"{HWMON}/{device}/{name}"
        for device in host.names(HWMON)
        for name in host.names(f"{HWMON}/{device}")
        if name.startswith(("energy", "power")) and name.endswith(("_input", "_average"))
    ]
    if not found:
        return Finding("absent", "no power or energy sensor in /sys/class/hwmon")
    return _best(host, found, "sensors in /sys/class/hwmon")


def battery(host: HostFiles) -> Finding:
    """Discharge rate of a battery, which tells the power of the machine only while it discharges."""
    batteries = [n for n in host.names(SUPPLIES) if host.read_if_there(f"{SUPPLIES}/{n}/type") == "Battery"]
    if not batteries:
        return Finding("absent", "no battery in /sys/class/power_supply")
    for name in batteries:
        folder = f"{SUPPLIES}/{name}"
        state = host.read_if_there(f"{folder}/status")
        if state != "Discharging":
            continue
        if host.exists(f"{folder}/power_now"):
            return host.check_number(f"{folder}/power_now") or Finding("ok", f"{name} tells its power")
        wrong = host.check_number(f"{folder}/current_now") or host.check_number(f"{folder}/voltage_now")
        return wrong or Finding("ok", f"{name} tells current and voltage")
    return Finding(
        "absent", f"{', '.join(batteries)}: not discharging, so that nothing is known of the machine's power"
    )


READERS: Mapping[str, Callable[[HostFiles], Finding]] = {"perf": perf, "rapl": rapl, "hwmon": hwmon, "battery": battery}
"""Reader -> probe, in order of preference: the first that works is a node's primary source."""


def _best(host: HostFiles, files: list[str], what: str) -> Finding:
    """`ok` when one of the files can be read; otherwise what is wrong with the first."""
    wrong = [fault for fault in map(host.check_number, files) if fault]
    readable = len(files) - len(wrong)
    return Finding("ok", f"{readable} of {len(files)} {what} can be read") if readable else wrong[0]


def _has_capability(host: HostFiles, *numbers: int) -> bool:
    status = host.read_if_there("proc/self/status") or ""
    held = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:")]
    return bool(held) and any(held[0] >> number & 1 for number in numbers)


def _at_most_0(text: str) -> bool:
    try:
        return int(text) <= 0
    except ValueError:
        return False
