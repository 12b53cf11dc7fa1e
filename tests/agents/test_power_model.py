"""Power model: its values, its flags, and when it is used."""

import json
from pathlib import Path

import pytest
from recorded_host import RecordedHost, Script, metered, zones
from trees import meters

from agents.collected_traces import TABLES
from agents.power.model import Design, design_power
from agents.power.reader import ROOT_VARIABLE, MeteredHost
from agents.power.settings import PowerSettings
from agents.sensors import Host
from agents.sensors.power import PowerSensor
from inventory.values import EnergyModel

FREQ = "sys/devices/system/cpu/cpufreq/policy0"


def cpuinfo(name: str, cpus: int, flags: str = "fpu", sockets: int = 1) -> str:
    blocks = (
        f"processor\t: {n}\nmodel name\t: {name}\nphysical id\t: {n % sockets}\nflags\t\t: {flags}" for n in range(cpus)
    )
    return "\n\n".join(blocks)


def stat(*shares: float) -> Script:
    """Return a script of CPUs with these busy shares; waiting and stolen time passes, too, and is not busy."""

    def text(seconds: float) -> str:
        lines = [f"cpu{n} {int(share * seconds * 100)} 0 0 9 70 0 0 80" for n, share in enumerate(shares)]
        return "\n".join(["cpu 0 0 0 0 0 0 0", *lines])

    return text


def machine(tmp_path: Path, *shares: float, **files: str) -> RecordedHost:
    tree = {"proc/stat": "", "proc/cpuinfo": cpuinfo("Unheard-of", 2), **files}
    tree |= {f"sys/devices/system/cpu/cpu{n}/uevent": "" for n in range(len(shares))}
    return RecordedHost(meters.plant(tmp_path, tree), {"proc/stat": stat(*shares)})


def clock(cur_khz: int) -> dict[str, str]:
    names = {"scaling_driver": "acpi-cpufreq", "related_cpus": "0-1", "scaling_cur_freq": str(cur_khz)}
    names |= {"cpuinfo_min_freq": "1000000", "cpuinfo_max_freq": "3000000"}
    return {f"{FREQ}/{name}": text for name, text in names.items()}


@pytest.mark.parametrize(("khz", "watts"), [(3_000_000, 10 + 40 * 0.75), (1_500_000, 10 + 40 * 0.25 * 0.75)])
def test_power_follows_busy_share_and_clock(tmp_path: Path, khz: int, watts: float) -> None:
    host = machine(tmp_path, 1.0, 0.5, **clock(khz))
    result = metered(host, settings=PowerSettings(source="model", model=EnergyModel(10, 40, 2, mape=0.06)))
    assert result.total.joules == pytest.approx(watts * 10, rel=0.02)
    assert result.total.source == "model"
    assert result.total.flags == ("modelled",)
    assert 0.06 * watts * 10 <= result.total.bound_joules <= 0.1 * watts * 10


@pytest.mark.parametrize("model", [EnergyModel(10, 40, 3, f_ref_ghz=1e-200), EnergyModel(10, 40, 1e15, f_ref_ghz=1.0)])
def test_parameters_of_an_infinite_power_leave_energy_missing_with_the_reason(
    tmp_path: Path, model: EnergyModel
) -> None:
    host = machine(tmp_path, 1.0, 0.5, **clock(3_000_000))
    result = metered(host, settings=PowerSettings(source="model", model=model))
    assert result.total.joules is None
    assert "implausible power: inf W" in (result.total.reason or "")


def test_without_calibration_design_power_is_used_and_flagged(tmp_path: Path) -> None:
    host = machine(tmp_path, 1.0, 1.0, **{"proc/cpuinfo": cpuinfo("Intel(R) Core(TM) i5-6500 CPU @ 3.20GHz", 2)})
    result = metered(host)
    assert result.total.joules == pytest.approx(65 * 10, rel=0.02)
    assert result.total.flags == ("modelled", "uncalibrated")
    assert result.total.bound_joules >= 0.5 * result.total.joules


def test_power_of_an_unknown_processor_is_missing_and_not_guessed(tmp_path: Path) -> None:
    result = metered(machine(tmp_path, 1.0, 1.0))
    assert result.total.joules is None
    assert "model: the design power of Unheard-of is not known" in result.total.reason


def test_a_meter_takes_precedence_over_a_model_unless_the_model_is_selected(tmp_path: Path) -> None:
    settings = {"model": {"p_s": 5, "p_d": 20}}
    files = {**meters.amd(), "etc/millrace/power.yaml": json.dumps(settings)}
    host = machine(tmp_path, 0.5, 0.5, **files)
    host.scripts |= zones({"intel-rapl:0": 55.0, "intel-rapl:0:0": 31.0})
    assert metered(host).total.source == "rapl"
    meters.plant(tmp_path, {"etc/millrace/power.yaml": json.dumps({**settings, "source": "model"})})
    result = metered(host)
    assert result.total.source == "model"
    assert result.total.joules == pytest.approx(15 * 10, rel=0.02)


@pytest.mark.parametrize(
    ("name", "cpus", "flags", "sockets", "watts"),
    [
        ("Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz", 80, "fpu", 2, 300),
        ("Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz", 4, "fpu hypervisor", 1, 15),
        ("AMD EPYC 7742 64-Core Processor", 128, "fpu", 1, 225),
        ("Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz", 28, "fpu", 1, 120),
        ("Intel(R) Xeon(R) CPU E5-2670 0 @ 2.60GHz", 16, "fpu", 1, 115),
        ("Intel(R) Xeon(R) CPU E5-2670 v3 @ 2.30GHz", 24, "fpu", 1, None),
        ("Intel(R) Xeon(R) Gold 6148F CPU @ 2.40GHz", 40, "fpu", 1, None),
    ],
)
def test_design_power_counts_chips_and_a_virtual_machines_share_of_one(
    tmp_path: Path, name: str, cpus: int, flags: str, sockets: int, watts: float | None
) -> None:
    found = design_power(MeteredHost(meters.plant(tmp_path, {"proc/cpuinfo": cpuinfo(name, cpus, flags, sockets)})))
    assert (found.watts if isinstance(found, Design) else None) == watts


def test_a_node_without_a_meter_follows_the_model_of_its_inventory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"proc/stat": stat(0.0, 0.0)(0.0), "proc/cpuinfo": cpuinfo("Unheard-of", 2)}
    monkeypatch.setenv(ROOT_VARIABLE, str(meters.plant(tmp_path, files)))
    sensor = PowerSensor(Host("n1", "10.0.0.1", False, 1, dict, EnergyModel(7.5, 40, mape=0.04)))
    assert sensor.probe() is None
    rows = [
        dict(zip(TABLES["power"].names[4:], row.values, strict=True)) for row in sensor.read(0) if row.table == "power"
    ]
    sensor.close()
    assert {(row["source"], row["watts"]) for row in rows} == {("model", 7.5)}
    flags = [set(row["flags"].split(",")) for row in rows]
    assert all("modelled" in each and "uncalibrated" not in each for each in flags)
