"""Recorded hosts with advancing counters, metered on their own clock."""

from collections.abc import Mapping

from recorded_host import RecordedHost, Script, constant_power, rapl_counter
from trees.meters import POWERCAP, UNIT_15, UNIT_61

from agents.power.meter import History, Metered, metered_energy
from agents.power.metering import Metering
from agents.power.settings import PowerSettings, meter_settings


def zones(watts: Mapping[str, float], units: Mapping[str, float] | None = None) -> dict[str, Script]:
    """Return counters of zones with constant power, each with a different start value."""
    return {
        f"{POWERCAP}/{folder}/energy_uj": rapl_counter(
            constant_power(power), (units or {}).get(folder, UNIT_61), 1000 * at + 7
        )
        for at, (folder, power) in enumerate(watts.items())
    }


def metered(host: RecordedHost, seconds: float = 10.0, settings: PowerSettings | None = None) -> Metered:
    """Meter a host for some seconds of its own clock, with ten samples a second."""
    metering, history = Metering(host, settings or meter_settings(host)), History()
    history.add(metering.sample())
    start_ns = host.monotonic_ns()
    while (left_ns := start_ns + round(seconds * 1e9) - host.monotonic_ns()) > 0:
        host.wait(min(0.1, left_ns / 1e9))
        history.add(metering.sample())
    end_ns = start_ns + round(seconds * 1e9)
    metering.close()
    return metered_energy(history, metering, start_ns, end_ns)


SERVER = zones(
    {"intel-rapl:0": 80.0, "intel-rapl:0:0": 9.0, "intel-rapl:1": 300.0, "intel-rapl:2": 60.0, "intel-rapl:2:0": 7.0},
    {"intel-rapl:0:0": UNIT_15, "intel-rapl:2:0": UNIT_15},
)
"""Zones of the tree `server`: two packages with DRAM, 156 W, on a platform of 300 W."""

CLIENT = zones({"intel-rapl:0": 20.0, "intel-rapl:0:0": 12.0, "intel-rapl:0:1": 1.0, "intel-rapl:1": 35.0})
"""Zones of the tree `client`: a package of 20 W on a platform of 35 W."""

AMD = zones({"intel-rapl:0": 55.0, "intel-rapl:0:0": 31.0})
"""Zones of the tree `amd`: a package of 55 W."""
