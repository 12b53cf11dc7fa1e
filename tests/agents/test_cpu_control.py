"""CPU settings under the control of a run: requested and actual values, and CPUs that come back online."""

from pathlib import Path

import cpu_guardian_programs
import pytest
from fake_kernel import FakeKernel, all_files
from hypothesis import given
from hypothesis import strategies as st
from trees.processors import CPU, acpi_shared, hybrid, intel_active, intel_passive, virtual, write

from agents.cpu import frequency
from agents.cpu.apply import CpuClock, busy_clocks, verify
from agents.cpu.control import CpuControl
from agents.cpu.feature import SettingChange, write_change
from agents.cpu.request import CpuRequest
from agents.cpu.topology import Policy, online_file
from agents.host_files import HostFiles


def controlled(root: Path) -> CpuControl:
    return CpuControl(FakeKernel(root), "a test", cpu_guardian_programs.GUARDIAN)


def test_a_clock_in_range_is_taken_and_one_out_of_range_is_reported_as_clamped(tmp_path: Path) -> None:
    root = intel_active().build(tmp_path)
    before = all_files(root)
    with controlled(root) as control:
        assert control.set_frequency(1_800_000_000).ok
        answer = control.set_frequency(9_000_000_000)
        assert not answer.ok
        assert {(setting.asked, setting.got) for setting in answer.settings} == {("9000000", "4000000")}
        assert control.set_frequency(800_000_000).ok
    assert all_files(root) == before


def test_a_clock_between_the_steps_of_a_table_is_rounded_and_reported(tmp_path: Path) -> None:
    with controlled(acpi_shared().build(tmp_path)) as control:
        answer = control.set_frequency(1_700_000_000)
        assert answer.ok
        assert {(setting.asked, setting.got) for setting in answer.settings} == {("1700000", "1600000")}


def test_on_a_hybrid_host_slow_cores_are_reported_separately(tmp_path: Path) -> None:
    with controlled(hybrid().build(tmp_path)) as control:
        answer = control.set_frequency(4_400_000_000)
        assert {s.got for s in answer.settings if s.ok} >= {"4400000"}
        slow = {setting.what for setting in answer.settings if not setting.ok}
        assert slow == {f"{end} clock limit of policy{n}" for end in ("lower", "upper") for n in range(4, 8)}


def test_cpus_that_come_back_online_get_the_settings_of_the_run(tmp_path: Path) -> None:
    """Their policies start with the kernel's defaults."""
    root = intel_passive().build(tmp_path)
    with controlled(root) as control:
        assert control.apply(CpuRequest(cores=2, governor="performance")).ok
        assert control.set_frequency(1_200_000_000).ok
        assert control.apply(CpuRequest(cores=4)).ok
        host = FakeKernel(root)
        for policy in range(8):
            assert host.read(f"{CPU}/cpufreq/policy{policy}/scaling_governor") == "performance"
            assert host.read(f"{CPU}/cpufreq/policy{policy}/scaling_max_freq") == "1200000"


def test_a_policy_that_another_program_takes_offline_with_its_cpu_is_skipped_and_restored(tmp_path: Path) -> None:
    root = intel_active().build(tmp_path)
    before = all_files(root)
    with controlled(root) as control:
        assert control.set_frequency(1_800_000_000).ok
        other = FakeKernel(root)
        other.write(online_file(7), "0")
        assert not other.exists(f"{CPU}/cpufreq/policy7")
        answer = control.set_frequency(1_200_000_000)
        assert answer.ok
        assert not any("policy7" in setting.what for setting in answer.settings)
    # The policy came back with other values than it had before; those are restored, too.
    assert all_files(root) == before


def test_a_policy_that_vanishes_between_the_check_and_the_write_is_reported(tmp_path: Path) -> None:
    kernel = FakeKernel(intel_active().build(tmp_path))
    step = SettingChange(
        "upper clock limit of policy7", f"{CPU}/cpufreq/policy7/scaling_max_freq", "4000000", "1200000", "1200000"
    )
    FakeKernel(kernel.root).write(online_file(7), "0")
    setting = write_change(step, kernel)
    assert (setting.got, setting.ok) == (None, False)
    assert setting.reason


def test_a_clamped_clock_does_not_block_later_requests(tmp_path: Path) -> None:
    with controlled(intel_active().build(tmp_path)) as control:
        assert not control.set_frequency(9_000_000_000).ok
        assert control.apply(CpuRequest(cores=3)).ok
        assert control.apply(CpuRequest(max_ghz=2.0, min_ghz=0.8)).ok


def test_a_change_of_driver_mode_discards_governors_of_the_former_mode(tmp_path: Path) -> None:
    with controlled(intel_active().build(tmp_path)) as control:
        assert control.apply(CpuRequest(governor="powersave", epp="power")).ok
        assert control.apply(CpuRequest(driver_mode="passive")).ok
        assert control.set_governor("ondemand").ok


def test_a_virtual_machine_refuses_every_setting_with_the_reason(tmp_path: Path) -> None:
    root = virtual().build(tmp_path)
    with controlled(root) as control:
        for answer in (
            control.set_frequency(1_000_000_000),
            control.set_range(1_000_000_000, 2_000_000_000),
            control.set_governor("performance"),
        ):
            (refused,) = answer.refused
            assert "usual in virtual machines" in refused.reason
    assert not (root / "run").exists()


def test_a_read_only_sys_is_refused_before_anything_is_stored(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    write(root, "proc/mounts", "sysfs /sys sysfs ro 0 0")
    with controlled(root) as control:
        assert "read-only" in str(control.set_frequency(1_200_000_000).refused[0])
    assert not (root / "run").exists()


@given(st.data())
def test_a_range_is_written_in_an_order_that_never_crosses(data: st.DataObject) -> None:
    clocks = st.integers(500, 5000).map(lambda mhz: mhz * 1000)
    lowest, highest = sorted((data.draw(clocks), data.draw(clocks)))
    low, high = sorted(data.draw(st.integers(lowest, highest)) for _ in "ab")
    steps = st.lists(st.integers(lowest, highest), max_size=6)
    table = tuple(sorted({lowest, highest, *data.draw(steps)})) if data.draw(st.booleans()) else ()
    asked = sorted((data.draw(clocks), data.draw(clocks)))
    policy = Policy("policy0", (0,), "any", None, (), low, high, lowest, highest, None, table, None, ())
    now = {"scaling_min_freq": low, "scaling_max_freq": high}
    for step in frequency.range_changes(policy, asked[0], asked[1]):
        now[step.path.split("/")[-1]] = int(step.write)
        assert lowest <= now["scaling_min_freq"] <= now["scaling_max_freq"] <= highest
        assert not table or int(step.write) in table
    assert len(frequency.range_changes(policy, *asked)) == 2


def test_the_clock_of_busy_cores_is_compared_with_what_was_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = acpi_shared().build(tmp_path)
    with controlled(root) as control:
        control.set_frequency(1_200_000_000)
        clocks = {
            0: CpuClock(1.19e9, "perf cycles"),
            1: CpuClock(2.4e9, "perf cycles"),
            2: CpuClock(None, "no cycle was counted"),
        }
        clocks[3] = CpuClock(1.2e9, "scaling_cur_freq")
        monkeypatch.setattr("agents.cpu.apply.busy_clocks", lambda host, cpus, is_real: clocks)
        report = verify(CpuRequest(max_ghz=1.2), FakeKernel(root))
    by_cpu = {check["what"]: check for check in report["checks"] if "under load" in check["what"]}
    assert [check["ok"] for check in by_cpu.values()] == [True, False, None, True]
    assert by_cpu["clock of cpu1 under load"]["got"] == 2.4
    assert by_cpu["clock of cpu2 under load"]["got"] is None
    assert not report["ok"]


def test_the_clock_of_busy_cores_is_compared_with_the_request_where_a_setting_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = acpi_shared().build(tmp_path)
    clocks = {0: CpuClock(2.4e9, "perf cycles"), 1: CpuClock(1.2e9, "perf cycles")}
    monkeypatch.setattr("agents.cpu.apply.busy_clocks", lambda host, cpus, is_real: clocks)
    report = verify(CpuRequest(max_ghz=1.2), FakeKernel(root))
    busy = [check for check in report["checks"] if "under load" in check["what"]]
    assert [(check["asked"].split()[-1], check["ok"]) for check in busy] == [("1.2", False), ("1.2", True)]


def test_busy_clocks_of_a_node_with_files_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real processes spin; the clock in the node's files counts, not the cycles of the underlying machine."""
    monkeypatch.setattr("agents.cpu.apply.SPIN_S", 0.05)
    write(tmp_path, f"{CPU}/cpu0/cpufreq/scaling_cur_freq", "1500000")
    clocks = busy_clocks(HostFiles(tmp_path), [0, 1], is_real=False)
    assert clocks[0] == CpuClock(1.5e9, "scaling_cur_freq")
    assert clocks[1].hz is None
    assert clocks[1].source


def test_busy_clocks_of_this_machine_are_measured_or_missing_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.cpu.apply.SPIN_S", 0.2)
    (clock,) = busy_clocks(HostFiles(), [0], is_real=True).values()
    assert clock.source
    assert clock.hz is None or 1e8 < clock.hz < 1e10
