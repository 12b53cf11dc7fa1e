"""Supported settings by machine: each driver, shared policies, SMT, offline cores, no cpufreq at all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_kernel import FakeKernel, all_files
from hypothesis import given
from hypothesis import strategies as st
from trees.processors import (
    CPU,
    MACHINES,
    Machine,
    acpi_shared,
    amd_epp,
    amd_passive,
    core_off,
    cppc,
    half_policy,
    hybrid,
    intel_active,
    intel_passive,
    smt_off,
    two_sockets,
    virtual,
    write,
)

from agents.cpu.apply import SavedSettings, apply
from agents.cpu.cores import cores_to_keep
from agents.cpu.plan import facts, plan, take_snapshot
from agents.cpu.request import CpuRequest
from agents.cpu.topology import Core, CpuTopology, parse_list, read_topology
from agents.host_files import HostFiles

Make = Callable[[], Machine]


def refusal(make: Make, root: Path, **settings: Any) -> str:
    """Return the only refusal of settings, as a user reads it."""
    kernel = FakeKernel(make().build(root))
    answer = apply(CpuRequest(**settings), kernel, SavedSettings(take_snapshot(kernel)))
    assert kernel.writes == []
    assert not answer.changed
    assert plan(CpuRequest(**settings), kernel).refused == answer.refused
    (refused,) = answer.refused
    return str(refused)


@pytest.mark.parametrize(
    ("make", "settings", "told"),
    [
        (acpi_shared, {"cores": 5}, "cores: 5: there are 4 physical cores; possible: 1 to 4"),
        (two_sockets, {"cores": 1}, "possible: 2 to 8"),
        (core_off, {"cores": 5}, "there are 4 physical cores"),
        (acpi_shared, {"governor": "turbo"}, "possible: conservative, ondemand, userspace"),
        (acpi_shared, {"governor": "perfomance"}, "did you mean 'performance'?"),
        (intel_active, {"governor": "ondemand"}, "policy0 (driver intel_pstate) has no such governor"),
        (amd_epp, {"governor": "schedutil"}, "possible: performance, powersave"),
        (virtual, {"governor": "performance"}, "no cpufreq policy (usual in virtual machines)"),
        (virtual, {"max_ghz": 2.0}, "no cpufreq policy (usual in virtual machines)"),
        (acpi_shared, {"max_ghz": 9.0}, "max_ghz: 9 GHz: out of range; nearest: 3 GHz; possible: 0.8 to 3 GHz"),
        (acpi_shared, {"max_ghz": 0.1}, "nearest: 0.8 GHz"),
        (hybrid, {"min_ghz": 4.5}, "possible: 0.8 to 3.8 GHz"),
        (virtual, {"turbo": False}, "neither intel_pstate/no_turbo nor cpufreq/boost exists"),
        (cppc, {"turbo": True}, "neither intel_pstate/no_turbo nor cpufreq/boost exists"),
        (acpi_shared, {"smt": True}, "holds 'notsupported'"),
        (cppc, {"driver_mode": "passive"}, "has no modes"),
        (intel_active, {"driver_mode": "guided"}, "possible: active, passive"),
        (acpi_shared, {"epp": "power"}, "no cpufreq policy with an energy_performance_preference"),
        (intel_active, {"epp": "powersafe"}, "did you mean 'power'?"),
        (
            intel_active,
            {"epp": "power", "governor": "performance"},
            "the governor performance of driver intel_pstate locks",
        ),
    ],
)
def test_impossible_settings_are_refused_and_nothing_is_written(
    make: Make, settings: dict[str, Any], told: str, tmp_path: Path
) -> None:
    assert told in refusal(make, tmp_path, **settings)


def test_one_impossible_setting_refuses_the_whole_request(tmp_path: Path) -> None:
    assert "governor" in refusal(acpi_shared, tmp_path, governor="nonsense", turbo=False, cores=1)


def test_one_limit_beyond_the_other_that_is_in_force_is_refused(tmp_path: Path) -> None:
    kernel = FakeKernel(acpi_shared().build(tmp_path))
    saved = SavedSettings(take_snapshot(kernel))
    assert apply(CpuRequest(max_ghz=1.6), kernel, saved).ok
    (refused,) = apply(CpuRequest(min_ghz=2.0), kernel, saved).refused
    assert "max_ghz must be raised as well" in str(refused)
    assert apply(CpuRequest(min_ghz=2.0, max_ghz=2.4), kernel, saved).ok


@pytest.mark.parametrize("make", MACHINES)
def test_a_plan_writes_nothing_and_predicts_what_apply_does(make: Make, tmp_path: Path) -> None:
    root = make().build(tmp_path)
    kernel = FakeKernel(root)
    before = all_files(root)
    requests = [
        CpuRequest(cores=2),
        CpuRequest(turbo=False),
        CpuRequest(min_ghz=1.2, max_ghz=1.6),
        CpuRequest(governor="performance"),
    ]
    saved = SavedSettings(take_snapshot(kernel))
    for request in requests:
        planned = plan(request, kernel)
        assert kernel.writes == []
        assert all_files(root) == before
        result = apply(request, kernel, saved)
        assert planned.refused == result.refused
        assert planned.changed == result.changed
        assert {s.path: s.asked for s in planned.settings}.items() <= {s.path: s.asked for s in result.settings}.items()
        assert result.refused or result.ok, [s for s in result.settings if not s.ok]
        # The second time nothing is left to do.
        assert not plan(request, kernel, saved.before).changed
        assert not apply(request, kernel, saved).changed
        before, kernel = all_files(root), FakeKernel(root)


@pytest.mark.parametrize(
    ("make", "policies"),
    [
        (acpi_shared, 2),
        (intel_active, 8),
        (intel_passive, 8),
        (amd_epp, 8),
        (amd_passive, 8),
        (cppc, 1),
        (half_policy, 2),
    ],
)
def test_a_clock_is_fixed_with_every_driver_and_each_policy_is_written_once(
    make: Make, policies: int, tmp_path: Path
) -> None:
    kernel = FakeKernel(make().build(tmp_path))
    answer = apply(CpuRequest(min_ghz=1.2, max_ghz=1.2), kernel, SavedSettings(take_snapshot(kernel)))
    assert answer.ok
    assert len(kernel.writes) == 2 * policies
    assert {setting.got for setting in answer.settings} == {"1200000"}
    # The governor stays.
    assert not [path for path, _ in kernel.writes if "governor" in path]


def test_the_lower_limit_never_exceeds_the_upper_one_during_a_change(tmp_path: Path) -> None:
    """The fake kernel refuses such a write with EINVAL, as kernels before 5.4 did."""
    kernel = FakeKernel(acpi_shared().build(tmp_path))
    saved = SavedSettings(take_snapshot(kernel))
    for low, high in ((2.4, 2.4), (0.8, 0.8), (1.2, 2.4), (2.4, 3.0), (0.8, 1.2)):
        assert apply(CpuRequest(min_ghz=low, max_ghz=high), kernel, saved).ok


def test_whole_cores_go_offline_the_highest_first(tmp_path: Path) -> None:
    kernel = FakeKernel(intel_active().build(tmp_path))
    assert apply(CpuRequest(cores=2), kernel, SavedSettings(take_snapshot(kernel))).ok
    assert kernel.read(f"{CPU}/online") == "0,1,4,5"


def test_cores_go_offline_evenly_over_sockets(tmp_path: Path) -> None:
    kernel = FakeKernel(two_sockets().build(tmp_path))
    saved = SavedSettings(take_snapshot(kernel))
    assert apply(CpuRequest(cores=3), kernel, saved).ok
    assert kernel.read(f"{CPU}/online") == "0,1,2,8,9,10"
    # The kernel reports little about offline cores; the rest comes from the saved settings.
    assert apply(CpuRequest(cores=6), kernel, saved).ok
    assert kernel.read(f"{CPU}/online") == "0,1,2,3,4,5,8,9,10,11,12,13"


def test_slow_cores_of_a_hybrid_host_go_offline_first(tmp_path: Path) -> None:
    kernel = FakeKernel(hybrid().build(tmp_path))
    assert apply(CpuRequest(cores=3), kernel, SavedSettings(take_snapshot(kernel))).ok
    assert kernel.read(f"{CPU}/online") == "0,1,2,3,4"


def test_an_upper_limit_above_the_slow_cores_maximum_does_not_limit_them(tmp_path: Path) -> None:
    kernel = FakeKernel(hybrid().build(tmp_path))
    assert apply(CpuRequest(max_ghz=4.5), kernel, SavedSettings(take_snapshot(kernel))).ok
    assert kernel.read(f"{CPU}/cpufreq/policy0/scaling_max_freq") == "4500000"
    assert kernel.read(f"{CPU}/cpufreq/policy4/scaling_max_freq") == "3800000"


def test_an_offline_core_that_the_kernel_does_not_list_is_switched_on_when_requested(tmp_path: Path) -> None:
    kernel = FakeKernel(core_off().build(tmp_path))
    saved = SavedSettings(take_snapshot(kernel))
    assert plan(CpuRequest(cores=4), kernel).changed
    assert apply(CpuRequest(cores=4, governor="performance"), kernel, saved).ok
    assert kernel.read(f"{CPU}/online") == "0,1,2,3,4,5,6,7"
    assert kernel.read(f"{CPU}/cpufreq/policy7/scaling_governor") == "performance"


def test_with_smt_off_siblings_stay_off_and_cores_are_counted_all_the_same(tmp_path: Path) -> None:
    kernel = FakeKernel(smt_off().build(tmp_path))
    saved = SavedSettings(take_snapshot(kernel))
    assert apply(CpuRequest(cores=2), kernel, saved).ok
    assert kernel.read(f"{CPU}/online") == "0,1"
    assert apply(CpuRequest(cores=4), kernel, saved).ok
    assert kernel.read(f"{CPU}/online") == "0,1,2,3"
    assert apply(CpuRequest(smt=True), kernel, saved).ok
    assert kernel.read(f"{CPU}/online") == "0,1,2,3,4,5,6,7"


def test_smt_that_does_not_exist_is_off_already(tmp_path: Path) -> None:
    kernel = FakeKernel(acpi_shared().build(tmp_path))
    answer = apply(CpuRequest(smt=False), kernel, SavedSettings(take_snapshot(kernel)))
    assert answer.ok
    assert not answer.changed


def test_turbo_off_is_written_in_each_drivers_own_sense(tmp_path: Path) -> None:
    for make, path, value in (
        (intel_active, "intel_pstate/no_turbo", "1"),
        (acpi_shared, "cpufreq/boost", "0"),
        (amd_epp, "cpufreq/boost", "0"),
    ):
        root = tmp_path / make.__name__
        root.mkdir()
        kernel = FakeKernel(make().build(root))
        assert facts(kernel)["turbo"] is True
        assert apply(CpuRequest(turbo=False), kernel, SavedSettings(take_snapshot(kernel))).ok
        assert kernel.read(f"{CPU}/{path}") == value
        assert facts(kernel)["turbo"] is False


def test_limits_above_the_base_clock_can_be_requested_together_with_turbo(tmp_path: Path) -> None:
    kernel = FakeKernel(acpi_shared().build(tmp_path))
    saved = SavedSettings(take_snapshot(kernel))
    assert apply(CpuRequest(turbo=False), kernel, saved).ok
    assert apply(CpuRequest(max_ghz=3.0), kernel, saved).refused
    assert apply(CpuRequest(max_ghz=3.0, turbo=True), kernel, saved).ok
    assert kernel.read(f"{CPU}/cpufreq/policy0/scaling_max_freq") == "3000000"


def test_settings_of_a_driver_mode_are_judged_by_that_mode(tmp_path: Path) -> None:
    kernel = FakeKernel(intel_active().build(tmp_path))
    saved = SavedSettings(take_snapshot(kernel))
    assert plan(CpuRequest(governor="ondemand"), kernel).refused
    assert apply(CpuRequest(driver_mode="passive", governor="ondemand"), kernel, saved).ok
    assert plan(CpuRequest(driver_mode="active", governor="ondemand"), kernel).refused
    assert apply(CpuRequest(driver_mode="active", governor="powersave", epp="power"), kernel, saved).ok
    assert kernel.read(f"{CPU}/cpufreq/policy0/energy_performance_preference") == "power"


def test_a_write_without_effect_is_reported(tmp_path: Path) -> None:
    kernel = FakeKernel(acpi_shared().build(tmp_path))
    kernel.ignore(f"{CPU}/cpufreq/policy2/scaling_governor")
    answer = apply(CpuRequest(governor="performance"), kernel, SavedSettings(take_snapshot(kernel)))
    (failed,) = [setting for setting in answer.settings if not setting.ok]
    assert (failed.what, failed.asked, failed.got) == ("governor of policy2", "performance", "ondemand")
    assert not answer.ok


@pytest.mark.parametrize("number", range(6))
def test_a_write_that_fails_is_reported_and_stops_nothing_else(number: int, tmp_path: Path) -> None:
    def broken(count: int, path: str) -> None:
        if count == number:
            raise OSError(5, "Input/output error", path)

    kernel = FakeKernel(acpi_shared().build(tmp_path), broken)
    answer = apply(
        CpuRequest(governor="performance", min_ghz=1.2, max_ghz=1.2), kernel, SavedSettings(take_snapshot(kernel))
    )
    assert kernel.attempts == 6
    assert len(kernel.writes) == 5
    (failed,) = [setting for setting in answer.settings if not setting.ok]
    assert failed.reason.endswith(": Input/output error")


def test_a_read_only_sys_is_reported(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    write(root, "proc/mounts", "sysfs /sys sysfs ro,nosuid 0 0")
    (refused,) = plan(CpuRequest(turbo=False), FakeKernel(root)).refused
    assert refused.reason == "/sys is mounted read-only"
    # A setting that is already in force needs no write.
    assert plan(CpuRequest(turbo=True), FakeKernel(root)).ok


def test_without_write_permission_only_changes_are_refused(tmp_path: Path) -> None:
    class ReadOnly(FakeKernel):
        def is_writable(self, path: str) -> bool:
            return False

    kernel = ReadOnly(intel_active().build(tmp_path))
    current = CpuRequest(
        cores=4, governor="powersave", turbo=True, smt=True, min_ghz=0.8, max_ghz=4.0, driver_mode="active"
    )
    assert plan(current, kernel).ok
    for settings in ({"cores": 2}, {"governor": "performance"}, {"turbo": False}, {"smt": False}, {"max_ghz": 2.0}):
        (refused,) = plan(CpuRequest(**settings), kernel).refused
        assert "by this user" in refused.reason
        assert str(refused).endswith("; or by agents that are root (millrace_user: root)")
    write(tmp_path, "proc/mounts", "sysfs /sys sysfs ro 0 0")
    (refused,) = plan(CpuRequest(governor="performance", turbo=False), kernel).refused
    assert refused.reason == "/sys is mounted read-only"


def test_a_container_must_not_change_its_host(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    (root / "proc/self/ns").mkdir(parents=True)
    for name, number in (("pid", 4026531836), ("user", 4026532999)):
        (root / f"proc/self/ns/{name}").symlink_to(f"{name}:[{number}]")
    (refused,) = plan(CpuRequest(turbo=False), FakeKernel(root)).refused
    assert "not in the host's own user namespace" in refused.reason
    # A node with its own overlay over /sys may change the files in it.
    write(root, "proc/mounts", "sysfs /sys sysfs rw 0 0\noverlay /sys overlay rw 0 0")
    assert plan(CpuRequest(turbo=False), FakeKernel(root)).changed


def test_facts_of_every_machine(tmp_path: Path) -> None:
    found: dict[str, Any] = {}
    for make in MACHINES:
        root = tmp_path / make.__name__
        root.mkdir()
        found[make.__name__] = facts(FakeKernel(make().build(root)))
    shape = {name: (f["sockets"], f["cores"], f["cores_online"], f["threads"]) for name, f in found.items()}
    assert shape == {
        "acpi_shared": (1, 4, 4, 4),
        "intel_active": (1, 4, 4, 8),
        "intel_passive": (1, 4, 4, 8),
        "two_sockets": (2, 8, 8, 16),
        "amd_epp": (1, 4, 4, 8),
        "amd_passive": (1, 4, 4, 8),
        "cppc": (1, 4, 4, 4),
        "hybrid": (1, 6, 6, 8),
        # Nothing is known about cores that were already offline.
        "core_off": (1, 3, 3, 8),
        "smt_off": (1, 4, 4, 8),
        "half_policy": (1, 3, 3, 4),
        "virtual": (1, 2, 2, 2),
    }
    assert found["acpi_shared"]["frequencies_hz"] == [800e6, 1200e6, 1600e6, 2000e6, 2400e6, 3000e6]
    assert found["hybrid"]["frequencies_hz"] == [800e6, 3800e6]
    assert found["virtual"]["frequencies_hz"] == []
    assert found["virtual"]["driver"] is None
    assert "usual in virtual machines" in found["virtual"]["unavailable"]["clock"]
    assert found["amd_passive"]["driver_mode"] == "passive"
    assert found["intel_active"]["unavailable"] == {}


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.integers(1, 40),
    st.integers(1, 3),
    st.sets(st.integers(0, 20), max_size=3),
)
def test_kept_cores_match_the_request_and_are_evenly_distributed_where_possible(
    sizes: list[int], number: int, threads: int, fixed: set[int]
) -> None:
    cores, cpu = [], 0
    for socket, size in enumerate(sizes):
        for _ in range(size):
            cores.append(Core(socket, tuple(range(cpu, cpu + threads))))
            cpu += threads
    topology = CpuTopology(tuple(range(cpu)), frozenset(range(cpu)), frozenset(fixed), tuple(cores))
    kept = cores_to_keep(topology, number)
    remaining = {socket: sum(core.socket == socket for core in kept) for socket in range(len(sizes))}
    fixed_cores = {core for core in cores if fixed.intersection(core.cpus)}
    assert fixed_cores <= set(kept)
    assert min(remaining.values()) >= 1
    assert len(kept) >= min(number, len(cores))
    assert len(kept) == max(min(number, len(cores)), len(cores_to_keep(topology, 1)))
    if not fixed_cores and number >= len(sizes):
        # Sockets that lost cores keep the same number, within one.
        reduced = [remaining[socket] for socket, size in enumerate(sizes) if remaining[socket] < size]
        assert not reduced or max(reduced) - min(reduced) <= 1
        assert all(remaining[socket] <= min(reduced) + 1 for socket in remaining if reduced)


@pytest.mark.parametrize(("text", "cpus"), [("0-3,8", (0, 1, 2, 3, 8)), ("", ()), ("5", (5,)), ("0 2", (0, 2))])
def test_the_kernels_lists_of_cpus(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_list(text) == cpus


def test_a_machine_without_topology_files_has_one_core_per_cpu(tmp_path: Path) -> None:
    for cpu in range(3):
        write(tmp_path, f"{CPU}/cpu{cpu}/uevent", "")
    topology = read_topology(HostFiles(tmp_path))
    assert [core.cpus for core in topology.cores] == [(0,), (1,), (2,)]
    assert topology.fixed == {0, 1, 2}
    assert topology.online == {0, 1, 2}
