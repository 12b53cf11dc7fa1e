"""Package of a process: by affinity, by the CPU where it last ran, or unknown."""

import os
from pathlib import Path

import pytest
from trees import meters

from agents.cpu.topology import FOLDER
from agents.host_files import HostFiles
from agents.sensors import Host
from agents.sensors.kernel import NOWHERE, CpuSensor, HostPackages, PackagePlace

CPUS = sorted(os.sched_getaffinity(0))

needs_two = pytest.mark.skipif(len(CPUS) < 2, reason="one CPU is on one package")


def packages(tmp_path: Path, *numbers: str) -> HostPackages:
    """Return the packages of a host where the CPUs of this process have these package numbers in turn."""
    files = {
        f"{FOLDER}/cpu{cpu}/topology/physical_package_id": numbers[at % len(numbers)] for at, cpu in enumerate(CPUS)
    }
    return HostPackages(HostFiles(meters.plant(tmp_path, files)))


@pytest.fixture
def bound():
    """Binds this thread to its first CPU."""
    os.sched_setaffinity(0, {CPUS[0]})
    yield
    os.sched_setaffinity(0, CPUS)


def test_a_process_whose_cpus_are_all_on_one_package_is_there(tmp_path: Path) -> None:
    found = packages(tmp_path, "1")
    # Work before the first sample has no package.
    assert found.locate(os.getpid(), CPUS) == NOWHERE
    assert found.locate(os.getpid(), CPUS) == PackagePlace(1, "affinity")


@needs_two
def test_a_bound_process_is_on_its_cpus_package(tmp_path: Path, bound: None) -> None:
    found = packages(tmp_path, "0", "1")
    found.locate(0, CPUS)
    assert found.locate(0, CPUS) == PackagePlace(0, "affinity")
    # Offline CPUs are ignored.
    assert found.locate(0, CPUS[:1]) == PackagePlace(0, "affinity")


@needs_two
def test_an_unbound_process_is_on_the_package_of_two_samples_or_unknown(tmp_path: Path) -> None:
    found = packages(tmp_path, "0", "1")
    places = {found.locate(os.getpid(), CPUS) for _ in range(50)}
    assert places <= {NOWHERE, PackagePlace(0, "last_cpu"), PackagePlace(1, "last_cpu")}
    assert places - {NOWHERE}
    found.forget([])
    assert found.locate(os.getpid(), CPUS) == NOWHERE


@pytest.mark.parametrize("number", ["-1", "", "none"])
def test_without_package_numbers_the_package_is_unknown(number: str, tmp_path: Path) -> None:
    found = packages(tmp_path, number)
    assert [found.locate(os.getpid(), CPUS) for _ in range(2)] == [NOWHERE] * 2
    assert found.of(CPUS[0]) is None


def test_an_ended_process_has_no_package(tmp_path: Path) -> None:
    found = packages(tmp_path, "0")
    assert found.locate(2**22 + 1, CPUS) == NOWHERE


def test_the_sensor_reports_packages_of_cores_and_workers() -> None:
    sensor = CpuSensor(Host("n1", "127.0.0.2", True, os.getpid(), lambda: {0: os.getpid()}))
    assert sensor.probe() is None
    rows = [sensor.read(second * 1_000_000_000) for second in (1, 2)][1]
    here = HostPackages(HostFiles())
    by_scope: dict[str, list[tuple]] = {}
    for row in rows:
        by_scope.setdefault(row.values[0], []).append(row.values)
    for _, name, _, _, package, by, _ in by_scope["core"]:
        assert package == here.of(int(name))
        assert by == (None if package is None else "topology")
    (worker,) = by_scope["worker"]
    assert (worker[4] is None) == (worker[5] is None)
    assert worker[5] in (None, "affinity", "last_cpu")
    assert {values[4:6] for values in by_scope["agent"] + by_scope["node"]} == {(None, None)}
