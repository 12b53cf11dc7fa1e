"""Vitals of a node in an observed run: CPU, energy and clock, from what the sensors deliver for the traces."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from trees import meters

from agents.agent.worker_reports import EnergyTotal, NodeVitals
from agents.host_files import HostFiles
from agents.protocol import Vitals
from agents.sensors import Row

POLICIES = "sys/devices/system/cpu/cpufreq"


def power(
    t_ns: int, domain: str, joules: float | None, *, in_total: bool = True, is_shared: bool = False, flags: str = ""
) -> Row:
    values = (domain, "package", "rapl", in_total, 1, None, joules, 5.0, 0.1, 10, flags, is_shared)
    return Row("power", t_ns, values)


def machine(tmp_path: Path, clocks_khz: Sequence[tuple[str, str]]) -> HostFiles:
    """CPUs 0-2, and policies of (their CPUs, current clock)."""
    files = {f"sys/devices/system/cpu/cpu{n}/uevent": "" for n in range(3)}
    for at, (cpus, clock) in enumerate(clocks_khz):
        values = {"scaling_driver": "acpi-cpufreq", "related_cpus": cpus, "scaling_cur_freq": clock}
        files |= {f"{POLICIES}/policy{at}/{name}": text for name, text in values.items()}
    return HostFiles(meters.plant(tmp_path, files))


def observed(host: HostFiles, *samples: Sequence[Row]) -> Vitals | None:
    node = NodeVitals(host)
    found = None
    for rows in samples:
        found = node.vitals_of(1, rows)
    return found


CPU = Row("cpu", 500, ("node", "n1", 0.5, False, None, None))


def test_the_clock_is_the_mean_over_cpus(tmp_path: Path) -> None:
    host = machine(tmp_path, [("0-1", "1200000"), ("2", "2400000")])
    assert observed(host, [CPU]) == Vitals(epoch=1, cores=0.5, at_ns=500, hz=1.6e9)


@pytest.mark.parametrize("clocks", [[], [("0-2", "<unknown>")]])
def test_an_unreported_clock_is_unknown(tmp_path: Path, clocks: list[Any]) -> None:
    found = observed(machine(tmp_path, clocks), [CPU])
    assert found is not None
    assert found.hz is None


def test_energy_is_the_sum_of_the_terms_of_the_nodes_total(tmp_path: Path) -> None:
    host = machine(tmp_path, [])
    first = [CPU, power(400, "package-0", 1.0), power(410, "package-1", 2.0), power(410, "core-0", 9.0, in_total=False)]
    assert observed(host, first) == Vitals(epoch=1, cores=0.5, at_ns=500, joules=3.0, joules_ns=400, source="rapl")
    second = [CPU, power(450, "package-0", 1.5), power(490, "package-0", 4.0)]
    found = observed(host, first, second)
    assert found is not None
    assert (found.joules, found.joules_ns) == (6.0, 410)


@pytest.mark.parametrize(("flags", "is_modelled"), [("", False), ("late", False), ("wrap,modelled", True)])
def test_modelled_energy_is_marked(flags: str, is_modelled: bool) -> None:
    energy = EnergyTotal()
    energy.add([power(400, "package-0", 1.0), power(400, "package-1", 2.0, flags=flags)])
    assert energy.added_to(Vitals(epoch=1)).modelled is is_modelled


def test_a_missing_step_or_a_shared_machine_leaves_energy_unknown() -> None:
    energy, vitals = EnergyTotal(), Vitals(epoch=1, cores=0.5)
    energy.add([power(400, "package-0", 1.0, is_shared=True)])
    assert energy.added_to(vitals) == vitals
    energy.add([power(400, "package-0", 1.0), power(400, "package-1", None)])
    assert energy.added_to(vitals) == vitals
    energy.add([power(500, "package-1", 2.0)])
    assert energy.added_to(vitals).joules == 3.0


def test_a_sample_without_cpu_rows_keeps_its_energy_for_the_next(tmp_path: Path) -> None:
    node = NodeVitals(machine(tmp_path, []))
    assert node.vitals_of(1, [power(400, "package-0", 1.0)]) is None
    found = node.vitals_of(1, [CPU])
    assert found is not None
    assert found.joules == 1.0
