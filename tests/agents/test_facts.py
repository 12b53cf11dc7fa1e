"""Facts of a host for the inventory, None where the kernel reports no value; the computing-power index."""

import json
import platform
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from fake_kernel import FakeKernel
from trees.processors import acpi_shared, two_sockets, virtual

from agents.host import facts
from agents.host.facts import gather, index_facts, time_loops
from agents.host_files import HostFiles
from inventory.ansible_hosts import Gathered
from inventory.cluster import Facts
from inventory.power_index import CLOCK_ERROR, FLOPS_ERROR, isa_flops

ARM = """processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd evtstrm aes

processor\t: 1
BogoMIPS\t: 1.00
Features\t: other
"""

FLAGS = gather()["isa"] or []


def test_facts_are_json_and_fit_the_inventory():
    found = facts.gather()
    assert json.loads(json.dumps(found)) == found
    msgspec.convert({key: found[key] for key in ("bogomips", "isa")}, Facts)
    assert found["clock"].startswith("monotonic ")


def test_an_arm_machine_names_its_features_and_no_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(facts, "_CPUINFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(ARM)
    found = facts.gather()
    assert found["isa"] == ["fp", "asimd", "evtstrm", "aes"]
    assert found["bogomips"] == 243.75
    assert found["cpu_model"] is None


@pytest.mark.parametrize("cpuinfo", [None, "", "processor : 0\nbogomips : 0.00\nflags :\n"])
def test_facts_that_the_kernel_does_not_report_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cpuinfo):
    monkeypatch.setattr(facts, "_CPUINFO", tmp_path / "cpuinfo")
    if cpuinfo is not None:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
    found = facts.gather()
    assert (found["bogomips"], found["isa"], found["cpu_model"]) == (None, None, None)


@pytest.mark.skipif(platform.machine() != "x86_64" or "fma" not in FLAGS, reason="no fused multiply-add here")
@pytest.mark.parametrize("flags", [["fma", "avx2"], ["fma", "avx2", "avx512f"]])
def test_flops_per_cycle_are_measured_and_not_more_than_the_units_can_do(flags: list[str]) -> None:
    if not set(flags) <= set(FLAGS):
        pytest.skip("this processor has no such units")
    found = time_loops("x86_64", flags)
    peak = isa_flops(flags)
    assert found.flops_per_cycle is not None
    assert peak is not None
    # Even one vector unit of two, on a busy host, is far faster than a scalar unit.
    assert 2 < found.flops_per_cycle < 1.25 * peak
    assert found.ghz is not None
    assert 0.1 < found.ghz < 10
    assert found.flops_error is not None
    assert found.ghz_error is not None
    assert found.flops_error >= FLOPS_ERROR
    assert found.ghz_error >= CLOCK_ERROR


@pytest.mark.skipif(platform.machine() != "x86_64" or "fma" not in FLAGS, reason="no fused multiply-add here")
def test_the_error_of_a_measurement_is_that_of_its_worst_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one of five batches the core is slowed down by half during the multiply-adds."""
    times = iter([1.0, 1.0] * 4 + [2.0, 1.0])
    monkeypatch.setattr(facts, "BATCHES", 5)
    monkeypatch.setattr(facts, "ROUNDS", 1)
    calls = iter([1.0, 1.0])  # a trial of either loop, which finds the number of iterations
    monkeypatch.setattr(facts, "_timed", lambda _loop, _count: next(calls, None) or next(times))
    found = time_loops("x86_64", ["fma", "avx2"])
    assert found.flops_error == pytest.approx(0.5)
    assert found.ghz_error == CLOCK_ERROR


@pytest.mark.parametrize(("architecture", "flags"), [("aarch64", ["asimd"]), ("x86_64", ["sse2"])])
def test_flops_that_cannot_be_measured_are_none_with_a_reason(architecture: str, flags: list[str]) -> None:
    found = time_loops(architecture, flags)
    assert (found.flops_per_cycle, found.ghz) == (None, None)
    assert found.reason


def test_facts_have_the_online_cpus_and_their_clocks(tmp_path: Path) -> None:
    host = FakeKernel(two_sockets().build(tmp_path))
    found = index_facts(host)
    assert (found["sockets"], found["ghz_source"]) == (2, "cpufreq")
    assert found["cores"] <= found["threads"]
    ghz = host.read("sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq")
    assert found["ghz"] == int(ghz) / 1e6
    assert msgspec.convert(found, Gathered).cores == found["cores"]


def test_clocks_outside_of_the_range_in_force_are_left_out(tmp_path: Path) -> None:
    host = FakeKernel(acpi_shared().build(tmp_path))
    frequencies = index_facts(host)["frequencies_hz"]
    for policy in host.names("sys/devices/system/cpu/cpufreq"):
        if policy.startswith("policy"):
            host.write(f"sys/devices/system/cpu/cpufreq/{policy}/scaling_max_freq", str(frequencies[-2] // 1000))
    found = index_facts(host)
    assert found["frequencies_hz"] == frequencies[:-1]
    assert found["ghz"] == frequencies[-2] / 1e9


def test_without_cpufreq_the_clock_is_the_measured_one(tmp_path: Path) -> None:
    found = index_facts(FakeKernel(virtual().build(tmp_path)))
    assert found["frequencies_hz"] is None
    assert found["ghz"] == found["measured_ghz"]
    assert (found["ghz_error"] is None) == (found["ghz"] is None)


def test_the_program_prints_facts_as_json() -> None:
    result = subprocess.run([sys.executable, "-P", "-m", "agents.host.facts"], capture_output=True, check=True)
    found = json.loads(result.stdout)
    assert found["boot_id"] == HostFiles().read("proc/sys/kernel/random/boot_id")
    msgspec.convert(found, Gathered)
