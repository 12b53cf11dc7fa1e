"""Heat, strangers' hands and strangers' work on a node are seen, and nothing else."""

from pathlib import Path

import pytest
from trees.processors import CPU, Machine, acpi_shared, intel_active, write

from agents.power.reader import MeteredHost
from agents.sensors.interference import BACKGROUND, CHANGED, THROTTLED, Event, InterferenceMonitor

SECOND = 1_000_000_000


class Clocked(MeteredHost):
    """Files of a tree, and a clock that stands still."""

    now_ns = SECOND

    def monotonic_ns(self) -> int:
        return self.now_ns


def throttling(root: Path, cpu: int, core: int, package: int) -> None:
    write(root, f"{CPU}/cpu{cpu}/thermal_throttle/core_throttle_count", str(core))
    write(root, f"{CPU}/cpu{cpu}/thermal_throttle/package_throttle_count", str(package))


def work(root: Path, *ticks: int) -> None:
    lines = [f"cpu{at} {busy} 0 0 1000 0 0 0 0 0 0" for at, busy in enumerate(ticks)]
    write(root, "proc/stat", "\n".join(["cpu 0 0 0 0 0 0 0 0 0 0", *lines]))


def watching(root: Path, *, shared: bool = False) -> tuple[InterferenceMonitor, Clocked]:
    host = Clocked(root)
    # No process of ours: all work is that of others.
    return InterferenceMonitor(host, shared, list), host


def measured(watch: InterferenceMonitor, host: Clocked, root: Path, *ticks: int) -> list[Event]:
    """What is said over ten seconds in which the cores work that long."""
    work(root, *[0 for _ in ticks])
    watch.mark("measure_start")
    begun = watch.check()
    host.now_ns += 10 * SECOND
    work(root, *ticks)
    watch.mark("measure_end")
    return begun + watch.check()


@pytest.mark.parametrize("machine", [acpi_shared, intel_active])
def test_a_quiet_node_has_nothing_to_say(tmp_path: Path, machine: "type[Machine]") -> None:
    root = machine().build(tmp_path)
    throttling(root, 0, 7, 9)
    watch, host = watching(root)
    assert measured(watch, host, root, 10, 20, 0, 0) == []
    watch.close()


def test_settings_that_this_run_changes_are_not_a_strangers(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    watch, _ = watching(root)
    path = f"{CPU}/cpufreq/policy0/scaling_max_freq"
    with watch.set_by_us():
        write(root, path, "1600000")
        assert watch.check() == []
        write(root, path, "1200000")
    # What was set at the very end is seen by the next look.
    assert watch.check() == []
    write(root, path, "2000000")
    assert [event.kind for event in watch.check()] == [CHANGED]
    watch.close()


def test_heat_counts_for_every_core_and_for_a_package_once(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    for cpu in range(4):
        throttling(root, cpu, 5, 100)
    watch, _ = watching(root)
    for cpu in range(4):
        throttling(root, cpu, 8 if cpu == 2 else 5, 101)
    assert [(e.kind, e.subject, e.value) for e in watch.check()] == [(THROTTLED, "cpu0", 1.0), (THROTTLED, "cpu2", 3.0)]
    assert watch.check() == []


def test_a_counter_that_goes_with_its_cpu_is_no_heat(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    throttling(root, 3, 5, 100)
    watch, _ = watching(root)
    file = root / f"{CPU}/cpu3/thermal_throttle/core_throttle_count"
    file.unlink()
    assert watch.check() == []
    throttling(root, 3, 1, 100)
    assert watch.check() == []


def test_what_others_set_is_told_once_with_both_values(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    watch, _ = watching(root)
    write(root, f"{CPU}/cpufreq/policy2/scaling_max_freq", "1200000")
    write(root, f"{CPU}/online", "0,1,2")
    assert watch.check() == [
        Event(CHANGED, "policy2/scaling_max_freq", "3000000 -> 1200000: not by this run", 1.0),
        Event(CHANGED, "online", "0,1,2,3 -> 0,1,2: not by this run", 1.0),
    ]
    assert watch.check() == []


def test_background_load_is_the_share_of_all_cores_over_the_measured_interval(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    watch, host = watching(root)
    # Of 40 core seconds 2.4 are busy, at 100 ticks a second.
    (event,) = measured(watch, host, root, 100, 100, 40, 0)
    assert event.kind == BACKGROUND
    assert event.value == pytest.approx(0.06)
    assert measured(watch, host, root, 90, 90, 0, 0) == []


def test_on_a_shared_machine_nobody_is_a_stranger(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    watch, host = watching(root, shared=True)
    assert measured(watch, host, root, 1000, 1000, 1000, 1000) == []


def test_a_core_that_comes_or_goes_makes_the_load_unknown(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    watch, host = watching(root)
    work(root, 0, 0, 0, 0)
    watch.mark("measure_start")
    watch.check()
    host.now_ns += SECOND
    work(root, 100, 100, 100)
    watch.mark("measure_end")
    assert watch.check() == []


def test_without_any_files_nothing_is_seen_and_nothing_fails(tmp_path: Path) -> None:
    watch, _ = watching(tmp_path)
    for kind in ("measure_start", "measure_end"):
        watch.mark(kind)
        assert watch.check() == []
    watch.close()
