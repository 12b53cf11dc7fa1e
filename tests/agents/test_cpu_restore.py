"""Restoration of CPU settings: after any change, interrupted at any write, every file has its original value."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from fake_kernel import FakeKernel, all_files, readable_files
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis_examples import one_in
from trees.processors import CPU, MACHINES, Machine, acpi_shared, amd_epp, core_off, intel_active, smt_off, write

from agents.cpu.apply import SavedSettings, apply, differences, restore_settings
from agents.cpu.journal import CpuJournal, CpuSnapshot, journal_path, read_journal, write_journal
from agents.cpu.plan import take_snapshot
from agents.cpu.request import CpuRequest
from inventory.errors import InputError, UnfitError

Make = Callable[[], Machine]

GHZ = (0.8, 1.0, 1.2, 1.6, 2.0, 2.4, 3.0, 3.8)
SETTINGS: dict[str, st.SearchStrategy[Any]] = {
    "cores": st.integers(1, 8),
    "governor": st.sampled_from(["performance", "powersave", "schedutil", "ondemand", "userspace"]),
    "turbo": st.booleans(),
    "epp": st.sampled_from(["performance", "balance_power", "power", "128"]),
    "smt": st.booleans(),
    "driver_mode": st.sampled_from(["active", "passive", "guided"]),
}
CLOCKS = st.tuples(st.sampled_from(GHZ), st.sampled_from(GHZ)).map(sorted)


@st.composite
def requests(draw: st.DrawFn) -> CpuRequest:
    settings = draw(st.fixed_dictionaries({}, optional=SETTINGS))
    if draw(st.booleans()):
        low, high = draw(CLOCKS)
        settings |= {"min_ghz": low, "max_ghz": high}
    return CpuRequest(**settings)


class Killed(BaseException):
    """The process is killed at this point."""


def killed_at(number: int) -> Callable[[int, str], None]:
    def before_write(count: int, path: str) -> None:
        if count == number:
            raise Killed

    return before_write


def set_by_operator(root: Path, requests: list[CpuRequest]) -> None:
    """Apply settings before the campaign: the kernel's defaults would come back by themselves."""
    kernel = FakeKernel(root)
    for request in requests:
        apply(request, kernel, SavedSettings(take_snapshot(kernel)))


def run(root: Path, asked: list[CpuRequest], before_write: Callable[[int, str], None]) -> None:
    """Act as a campaign: save the settings, then apply one request after the other."""
    kernel = FakeKernel(root, before_write)
    before = take_snapshot(kernel)
    write_journal(root, CpuJournal("a test", before))
    saved = SavedSettings(before, lambda grown: write_journal(root, CpuJournal("a test", grown)))
    for request in asked:
        apply(request, kernel, saved)


def restore_from_journal(root: Path, before_write: Callable[[int, str], None] = lambda number, path: None) -> None:
    journal = read_journal(root)
    assert journal is not None
    answer = restore_settings(journal.before, FakeKernel(root, before_write))
    assert answer.ok, [setting for setting in answer.settings if not setting.ok]


@settings(max_examples=one_in(2))
@given(
    make=st.sampled_from(MACHINES),
    keeps=st.booleans(),
    earlier=st.lists(requests(), max_size=2),
    asked=st.lists(requests(), min_size=1, max_size=4),
    death=st.integers(0, 120),
    second_death=st.integers(0, 40),
)
def test_restore_is_the_identity_from_every_crash_point(
    make: Make, keeps: bool, earlier: list[CpuRequest], asked: list[CpuRequest], death: int, second_death: int
) -> None:
    with TemporaryDirectory() as folder:
        root = make().build(Path(folder), keeps_policies=keeps)
        set_by_operator(root, earlier)
        (root / "run/millrace").mkdir(parents=True)
        # A change of its mode resets what cannot be read from a driver: settings of offline CPUs.
        files = readable_files if any(request.driver_mode for request in asked) else all_files
        before = files(root)
        with suppress(Killed):
            run(root, asked, killed_at(death))
        try:
            restore_from_journal(root, killed_at(second_death))
        except Killed:
            restore_from_journal(root)
        assert files(root) == before
        # A second restoration changes nothing.
        journal = read_journal(root)
        assert journal is not None
        assert not differences(journal.before, FakeKernel(root)).changed
        assert not restore_settings(journal.before, FakeKernel(root)).changed
        assert files(root) == before


@pytest.mark.parametrize(
    ("make", "keeps"),
    [
        (core_off, True),
        pytest.param(acpi_shared, False, marks=pytest.mark.long),
        pytest.param(amd_epp, False, marks=pytest.mark.long),
    ],
)
def test_every_single_crash_point_of_a_full_change_is_restored(make: Make, keeps: bool, tmp_path: Path) -> None:
    """Test all writes of one large change, not only random ones."""
    asked = [
        CpuRequest(cores=2, min_ghz=1.2, max_ghz=1.6),
        CpuRequest(governor="performance"),
        CpuRequest(turbo=False),
        CpuRequest(driver_mode="passive"),
        CpuRequest(cores=4, smt=False),
    ]
    number, done = 0, False
    while not done:
        root = tmp_path / str(number)
        (root / "run/millrace").mkdir(parents=True)
        make().build(root, keeps_policies=keeps)
        set_by_operator(
            root, [CpuRequest(governor="powersave", min_ghz=1.0, max_ghz=2.0), CpuRequest(epp="balance_power")]
        )
        before = all_files(root)
        try:
            run(root, asked, killed_at(number))
            done = True
        except Killed:
            pass
        restore_from_journal(root)
        assert all_files(root) == before, f"killed at write {number}"
        # On machines with many equal CPUs, not every write needs a test.
        number += 1 if number < 12 else 7


def test_a_file_that_cannot_be_read_at_the_start_is_never_written(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    unreadable = f"{CPU}/cpufreq/policy0/scaling_governor"

    class UnreadableOnce(FakeKernel):
        def read(self, path: str) -> str:
            if path == unreadable and not self.writes:
                raise OSError(5, "Input/output error", path)
            return super().read(path)

    kernel = UnreadableOnce(root)
    before = take_snapshot(kernel)
    assert before.unreadable == (unreadable,)
    answer = apply(CpuRequest(governor="performance", turbo=False), kernel, SavedSettings(before))
    assert unreadable not in {path for path, _ in kernel.writes}
    (failed,) = [setting for setting in answer.settings if not setting.ok]
    assert failed.path == unreadable
    assert "could not be read" in failed.reason


def test_settings_that_cannot_be_restored_are_listed_and_the_rest_is_restored(tmp_path: Path) -> None:
    root = intel_active().build(tmp_path)
    kernel = FakeKernel(root)
    before = take_snapshot(kernel)
    apply(CpuRequest(governor="performance", turbo=False, cores=3), kernel, SavedSettings(before))
    stuck = f"{CPU}/cpufreq/policy1/scaling_governor"
    kernel.ignore(stuck)
    answer = restore_settings(before, kernel)
    assert not answer.ok
    failed = {setting.path: setting for setting in answer.settings if not setting.ok}
    # The governor locks the preference, which therefore stays, too.
    assert set(failed) == {stuck, f"{CPU}/cpufreq/policy1/energy_performance_preference"}
    assert (failed[stuck].asked, failed[stuck].got) == ("powersave", "performance")
    assert kernel.read(f"{CPU}/intel_pstate/no_turbo") == "0"
    assert kernel.read(f"{CPU}/cpu3/online") == "1"
    kernel.ignore()
    assert restore_settings(before, kernel).ok


def test_a_write_that_fails_while_restoring_stops_nothing_else(tmp_path: Path) -> None:
    root = intel_active().build(tmp_path)
    before = take_snapshot(FakeKernel(root))
    apply(CpuRequest(governor="performance", turbo=False), FakeKernel(root), SavedSettings(before))

    def broken(count: int, path: str) -> None:
        if path.endswith("no_turbo"):
            raise OSError(5, "Input/output error", path)

    answer = restore_settings(before, FakeKernel(root, broken))
    (failed,) = [setting for setting in answer.settings if not setting.ok]
    assert failed.path.endswith("no_turbo")
    assert "Input/output error" in failed.reason
    assert FakeKernel(root).read(f"{CPU}/cpufreq/policy0/scaling_governor") == "powersave"


def test_after_a_reboot_nothing_is_restored(tmp_path: Path) -> None:
    root = intel_active().build(tmp_path)
    before = take_snapshot(FakeKernel(root))
    apply(CpuRequest(turbo=False), FakeKernel(root), SavedSettings(before))
    write(root, "proc/sys/kernel/random/boot_id", "99999999-2222-3333-4444-555555555555")
    kernel = FakeKernel(root)
    assert restore_settings(before, kernel).settings == ()
    assert kernel.writes == []


def test_values_of_files_that_appear_are_in_the_journal_before_these_are_written(tmp_path: Path) -> None:
    root = core_off().build(tmp_path)
    journal_path(root).parent.mkdir(parents=True)
    written = []

    def check(_number: int, path: str) -> None:
        journal = read_journal(root)
        assert journal is not None
        assert journal.before.value(path) is not None, path
        written.append((path, path in journal.before.later))

    run(root, [CpuRequest(cores=4, min_ghz=1.2, max_ghz=1.2)], check)
    assert (f"{CPU}/cpufreq/policy3/scaling_max_freq", True) in written


def test_a_clock_set_on_a_core_that_was_offline_is_restored_there_too(tmp_path: Path) -> None:
    """Kernels may keep a policy while its CPUs are offline: its limits must be as before when they come back online."""
    root = core_off().build(tmp_path, keeps_policies=True)
    kernel = FakeKernel(root)
    saved = SavedSettings(take_snapshot(kernel))
    assert apply(CpuRequest(cores=4, min_ghz=1.2, max_ghz=1.2), kernel, saved).ok
    assert kernel.read(f"{CPU}/cpufreq/policy3/scaling_max_freq") == "1200000"
    assert apply(CpuRequest(cores=3), kernel, saved).ok
    assert restore_settings(saved.before, kernel).ok
    assert kernel.read(f"{CPU}/cpu3/online") == "0"
    kernel.write(f"{CPU}/cpu3/online", "1")
    assert kernel.read(f"{CPU}/cpufreq/policy3/scaling_max_freq") == "4000000"


@pytest.mark.parametrize("asked", [CpuRequest(governor="performance"), CpuRequest(cores=2), CpuRequest(max_ghz=1.2)])
def test_a_clock_set_by_the_operator_is_restored_with_its_governor(asked: CpuRequest, tmp_path: Path) -> None:
    kernel = FakeKernel(acpi_shared().build(tmp_path, keeps_policies=True))
    for name in ("policy0", "policy2"):
        kernel.write(f"{CPU}/cpufreq/{name}/scaling_governor", "userspace")
        kernel.write(f"{CPU}/cpufreq/{name}/scaling_setspeed", "1600000")
    before = all_files(tmp_path)
    saved = SavedSettings(take_snapshot(kernel))
    assert apply(asked, kernel, saved).ok
    assert all_files(tmp_path) != before
    assert restore_settings(saved.before, kernel).ok
    assert all_files(tmp_path) == before


def test_a_preference_that_a_governor_locks_is_restored_on_siblings_that_were_offline(tmp_path: Path) -> None:
    """The preference changes with the governor, before it is written itself."""
    root = smt_off().build(tmp_path, keeps_policies=True)
    kernel = FakeKernel(root)
    before = all_files(root)
    saved = SavedSettings(take_snapshot(kernel))
    assert apply(CpuRequest(smt=True, governor="performance", epp="performance"), kernel, saved).ok
    assert restore_settings(saved.before, kernel).ok
    assert all_files(root) == before


def test_settings_of_the_former_driver_mode_are_restored_with_it(tmp_path: Path) -> None:
    root = amd_epp().build(tmp_path)
    kernel = FakeKernel(root)
    kernel.write(f"{CPU}/cpufreq/policy2/energy_performance_preference", "balance_power")
    before = all_files(root)
    saved = SavedSettings(take_snapshot(kernel))
    assert apply(CpuRequest(driver_mode="passive", governor="ondemand"), kernel, saved).ok
    assert restore_settings(saved.before, kernel).ok
    assert all_files(root) == before


def test_a_snapshot_survives_json(tmp_path: Path) -> None:
    snapshot = take_snapshot(FakeKernel(core_off().build(tmp_path))).with_later(
        {f"{CPU}/cpufreq/policy3/scaling_max_freq": "1"}
    )
    assert CpuSnapshot.from_document(json.loads(json.dumps(snapshot.to_document()))) == snapshot


@pytest.mark.parametrize("path", ["etc/passwd", f"{CPU}/../../../etc/passwd", "/etc/passwd", f"{CPU}"])
def test_a_journal_that_names_other_files_is_refused(path: str, tmp_path: Path) -> None:
    document = take_snapshot(FakeKernel(core_off().build(tmp_path))).to_document()
    document["values"][path] = "x"
    with pytest.raises(InputError, match="is not a file below"):
        CpuSnapshot.from_document(document)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"owner": "x"}', '{"owner": "x", "before": {"version": 2}}'])
def test_a_corrupt_journal_is_an_error_that_names_it(text: str, tmp_path: Path) -> None:
    journal_path(tmp_path).parent.mkdir(parents=True)
    journal_path(tmp_path).write_text(text)
    with pytest.raises(UnfitError, match=str(journal_path(tmp_path))):
        read_journal(tmp_path)
