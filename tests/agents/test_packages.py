"""On which package a process works: by affinity, by where it was seen, or not known."""

import os
from pathlib import Path

import pytest
from trees import meters

from agents.cpu.topology import FOLDER
from agents.host_files import HostFiles
from agents.sensors import Host
from agents.sensors.kernel import NOWHERE, CpuSensor, PackagePlace, Packages

CPUS = sorted(os.sched_getaffinity(0))

needs_two = pytest.mark.skipif(len(CPUS) < 2, reason="one CPU is on one package")


def packages(tmp_path: Path, *numbers: str) -> Packages:
    """A host whose CPUs, as far as they are ours, are on these packages in turn."""
    files = {
        f"{FOLDER}/cpu{cpu}/topology/physical_package_id": numbers[at % len(numbers)] for at, cpu in enumerate(CPUS)
    }
    return Packages(HostFiles(meters.plant(tmp_path, files)))


@pytest.fixture
def bound():
    """This thread on its first CPU."""
    os.sched_setaffinity(0, {CPUS[0]})
    yield
    os.sched_setaffinity(0, CPUS)


def test_a_process_whose_cpus_are_all_on_one_package_is_there(tmp_path: Path) -> None:
    found = packages(tmp_path, "1")
    # What it did before the first look is nobody's.
    assert found.locate(os.getpid(), CPUS) == NOWHERE
    assert found.locate(os.getpid(), CPUS) == PackagePlace(1, "affinity")


@needs_two
def test_a_bound_process_is_on_its_cpus_package(tmp_path: Path, bound: None) -> None:
    found = packages(tmp_path, "0", "1")
    found.locate(0, CPUS)
    assert found.locate(0, CPUS) == PackagePlace(0, "affinity")
    # Of CPUs that are off nobody runs on any.
    assert found.locate(0, CPUS[:1]) == PackagePlace(0, "affinity")


@needs_two
def test_a_free_process_is_where_it_was_seen_twice_and_else_not_known(tmp_path: Path) -> None:
    found = packages(tmp_path, "0", "1")
    seen = {found.locate(os.getpid(), CPUS) for _ in range(50)}
    assert seen <= {NOWHERE, PackagePlace(0, "last_cpu"), PackagePlace(1, "last_cpu")}
    assert seen - {NOWHERE}
    found.forget([])
    assert found.locate(os.getpid(), CPUS) == NOWHERE


@pytest.mark.parametrize("number", ["-1", "", "none"])
def test_a_kernel_that_names_no_package_leaves_it_open(number: str, tmp_path: Path) -> None:
    found = packages(tmp_path, number)
    assert [found.locate(os.getpid(), CPUS) for _ in range(2)] == [NOWHERE] * 2
    assert found.of(CPUS[0]) is None


def test_a_process_that_is_gone_is_nowhere(tmp_path: Path) -> None:
    found = packages(tmp_path, "0")
    assert found.locate(2**22 + 1, CPUS) == NOWHERE


def test_the_sensor_says_of_cores_and_workers_where_they_are() -> None:
    sensor = CpuSensor(Host("n1", "127.0.0.2", True, os.getpid(), lambda: {0: os.getpid()}))
    assert sensor.probe() is None
    rows = [sensor.read(second * 1_000_000_000) for second in (1, 2)][1]
    here = Packages(HostFiles())
    by_scope: dict[str, list[tuple]] = {}
    for row in rows:
        by_scope.setdefault(row.values[0], []).append(row.values)
    for _, name, _, _, package, by in by_scope["core"]:
        assert package == here.of(int(name))
        assert by == (None if package is None else "topology")
    (worker,) = by_scope["worker"]
    assert (worker[4] is None) == (worker[5] is None)
    assert worker[5] in (None, "affinity", "last_cpu")
    assert {values[4:] for values in by_scope["agent"] + by_scope["node"]} == {(None, None)}
