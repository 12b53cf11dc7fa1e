"""Interference on a node: throttling, changes of settings by others and load by others are reported, nothing else."""

from pathlib import Path

import pytest
from trees.processors import CPU, Machine, acpi_shared, intel_active, write

from agents.power.reader import MeteredHost
from agents.sensors.interference import BACKGROUND, CHANGED, THROTTLED, Event, InterferenceMonitor

SECOND = 1_000_000_000


class ScriptedHost(MeteredHost):
    """A host of files in a tree whose clock the test sets."""

    now_ns = SECOND

    def monotonic_ns(self) -> int:
        return self.now_ns


def write_throttle_counts(root: Path, cpu: int, core: int, package: int) -> None:
    write(root, f"{CPU}/cpu{cpu}/thermal_throttle/core_throttle_count", str(core))
    write(root, f"{CPU}/cpu{cpu}/thermal_throttle/package_throttle_count", str(package))


def write_busy_ticks(root: Path, *ticks: int) -> None:
    lines = [f"cpu{at} {busy} 0 0 1000 0 0 0 0 0 0" for at, busy in enumerate(ticks)]
    write(root, "proc/stat", "\n".join(["cpu 0 0 0 0 0 0 0 0 0 0", *lines]))


def monitor_of(root: Path, *, shared: bool = False) -> tuple[InterferenceMonitor, ScriptedHost]:
    host = ScriptedHost(root)
    # No process of ours: all load is that of others.
    return InterferenceMonitor(host, shared, list), host


def measure(monitor: InterferenceMonitor, host: ScriptedHost, root: Path, *ticks: int) -> list[Event]:
    """Return the events of ten seconds in which the cores are busy for these ticks."""
    write_busy_ticks(root, *[0 for _ in ticks])
    monitor.mark("measure_start")
    events = monitor.check()
    host.now_ns += 10 * SECOND
    write_busy_ticks(root, *ticks)
    monitor.mark("measure_end")
    return events + monitor.check()


@pytest.mark.parametrize("machine", [acpi_shared, intel_active])
def test_a_quiet_node_has_no_events(tmp_path: Path, machine: "type[Machine]") -> None:
    root = machine().build(tmp_path)
    write_throttle_counts(root, 0, 7, 9)
    monitor, host = monitor_of(root)
    assert measure(monitor, host, root, 10, 20, 0, 0) == []
    monitor.close()


def test_changes_of_settings_by_this_run_are_not_reported(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    monitor, _ = monitor_of(root)
    path = f"{CPU}/cpufreq/policy0/scaling_max_freq"
    with monitor.set_by_us():
        write(root, path, "1600000")
        assert monitor.check() == []
        write(root, path, "1200000")
    # A change at the very end is read by the next check.
    assert monitor.check() == []
    write(root, path, "2000000")
    assert [event.kind for event in monitor.check()] == [CHANGED]
    monitor.close()


def test_throttling_counts_for_every_core_and_for_a_package_once(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    for cpu in range(4):
        write_throttle_counts(root, cpu, 5, 100)
    monitor, _ = monitor_of(root)
    for cpu in range(4):
        write_throttle_counts(root, cpu, 8 if cpu == 2 else 5, 101)
    assert [(e.kind, e.subject, e.value) for e in monitor.check()] == [
        (THROTTLED, "cpu0", 1.0),
        (THROTTLED, "cpu2", 3.0),
    ]
    assert monitor.check() == []


def test_a_counter_that_disappears_with_its_cpu_is_no_throttling(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    write_throttle_counts(root, 3, 5, 100)
    monitor, _ = monitor_of(root)
    file = root / f"{CPU}/cpu3/thermal_throttle/core_throttle_count"
    file.unlink()
    assert monitor.check() == []
    write_throttle_counts(root, 3, 1, 100)
    assert monitor.check() == []


def test_changes_by_others_are_reported_once_with_both_values(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    monitor, _ = monitor_of(root)
    write(root, f"{CPU}/cpufreq/policy2/scaling_max_freq", "1200000")
    write(root, f"{CPU}/online", "0,1,2")
    assert monitor.check() == [
        Event(CHANGED, "policy2/scaling_max_freq", "3000000 -> 1200000: not by this run", 1.0),
        Event(CHANGED, "online", "0,1,2,3 -> 0,1,2: not by this run", 1.0),
    ]
    assert monitor.check() == []


def test_background_load_is_the_share_of_all_cores_over_the_measured_interval(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    monitor, host = monitor_of(root)
    # Of 40 core seconds 2.4 are busy, at 100 ticks a second.
    (event,) = measure(monitor, host, root, 100, 100, 40, 0)
    assert event.kind == BACKGROUND
    assert event.value == pytest.approx(0.06)
    assert measure(monitor, host, root, 90, 90, 0, 0) == []


def test_on_a_shared_machine_load_by_others_is_not_reported(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    monitor, host = monitor_of(root, shared=True)
    assert measure(monitor, host, root, 1000, 1000, 1000, 1000) == []


def test_a_core_that_comes_or_goes_makes_the_load_unknown(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    monitor, host = monitor_of(root)
    write_busy_ticks(root, 0, 0, 0, 0)
    monitor.mark("measure_start")
    monitor.check()
    host.now_ns += SECOND
    write_busy_ticks(root, 100, 100, 100)
    monitor.mark("measure_end")
    assert monitor.check() == []


def test_without_any_files_nothing_is_reported_and_nothing_fails(tmp_path: Path) -> None:
    monitor, _ = monitor_of(tmp_path)
    for kind in ("measure_start", "measure_end"):
        monitor.mark(kind)
        assert monitor.check() == []
    monitor.close()
