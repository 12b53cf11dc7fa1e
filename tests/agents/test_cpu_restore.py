"""Whatever is set, and wherever it is cut off, what was found is put back, file by file."""

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

from agents.cpu.apply import SavedSettings, apply, differences, restore
from agents.cpu.journal import CpuJournal, Snapshot, journal_path, read_journal, write_journal
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
    """The process ends here."""


def killed_at(number: int) -> Callable[[int, str], None]:
    def before_write(count: int, path: str) -> None:
        if count == number:
            raise Killed

    return before_write


def set_by_operator(root: Path, requests: list[CpuRequest]) -> None:
    """Settings that are there before us: the kernel's defaults would come back by themselves."""
    kernel = FakeKernel(root)
    for request in requests:
        apply(request, kernel, SavedSettings(take_snapshot(kernel)))


def run(root: Path, asked: list[CpuRequest], before_write: Callable[[int, str], None]) -> None:
    """What a campaign does to a host: keep, then set, one request after the other."""
    kernel = FakeKernel(root, before_write)
    before = take_snapshot(kernel)
    write_journal(root, CpuJournal("a test", before))
    saved = SavedSettings(before, lambda grown: write_journal(root, CpuJournal("a test", grown)))
    for request in asked:
        apply(request, kernel, saved)


def put_back(root: Path, before_write: Callable[[int, str], None] = lambda number, path: None) -> None:
    journal = read_journal(root)
    assert journal is not None
    answer = restore(journal.before, FakeKernel(root, before_write))
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
        # With its mode a driver forgets what nobody can read: the settings of CPUs that are off.
        files = readable_files if any(request.driver_mode for request in asked) else all_files
        before = files(root)
        with suppress(Killed):
            run(root, asked, killed_at(death))
        try:
            put_back(root, killed_at(second_death))
        except Killed:
            put_back(root)
        assert files(root) == before
        # Twice changes nothing.
        journal = read_journal(root)
        assert journal is not None
        assert not differences(journal.before, FakeKernel(root)).changed
        assert not restore(journal.before, FakeKernel(root)).changed
        assert files(root) == before


@pytest.mark.parametrize(
    ("make", "keeps"),
    [
        (core_off, True),
        pytest.param(acpi_shared, False, marks=pytest.mark.long),
        pytest.param(amd_epp, False, marks=pytest.mark.long),
    ],
)
def test_every_single_crash_point_of_a_full_change_is_put_back(make: Make, keeps: bool, tmp_path: Path) -> None:
    """The writes of one large change, not only those that chance picks."""
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
        put_back(root)
        assert all_files(root) == before, f"killed at write {number}"
        # Machines with many files need not be killed at each of their equal CPUs.
        number += 1 if number < 12 else 7


def test_a_file_that_cannot_be_read_at_the_start_is_never_written(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    shy = f"{CPU}/cpufreq/policy0/scaling_governor"

    class Shy(FakeKernel):
        def read(self, path: str) -> str:
            if path == shy and not self.writes:
                raise OSError(5, "Input/output error", path)
            return super().read(path)

    kernel = Shy(root)
    before = take_snapshot(kernel)
    assert before.unreadable == (shy,)
    answer = apply(CpuRequest(governor="performance", turbo=False), kernel, SavedSettings(before))
    assert shy not in {path for path, _ in kernel.writes}
    (left,) = [setting for setting in answer.settings if not setting.ok]
    assert left.path == shy
    assert "could not be read" in left.reason


def test_what_cannot_be_put_back_is_listed_and_the_rest_is_put_back(tmp_path: Path) -> None:
    root = intel_active().build(tmp_path)
    kernel = FakeKernel(root)
    before = take_snapshot(kernel)
    apply(CpuRequest(governor="performance", turbo=False, cores=3), kernel, SavedSettings(before))
    stuck = f"{CPU}/cpufreq/policy1/scaling_governor"
    kernel.ignore(stuck)
    answer = restore(before, kernel)
    assert not answer.ok
    left = {setting.path: setting for setting in answer.settings if not setting.ok}
    # With the governor stays the preference that it locks.
    assert set(left) == {stuck, f"{CPU}/cpufreq/policy1/energy_performance_preference"}
    assert (left[stuck].asked, left[stuck].got) == ("powersave", "performance")
    assert kernel.read(f"{CPU}/intel_pstate/no_turbo") == "0"
    assert kernel.read(f"{CPU}/cpu3/online") == "1"
    kernel.ignore()
    assert restore(before, kernel).ok


def test_a_write_that_fails_while_restoring_stops_nothing_else(tmp_path: Path) -> None:
    root = intel_active().build(tmp_path)
    before = take_snapshot(FakeKernel(root))
    apply(CpuRequest(governor="performance", turbo=False), FakeKernel(root), SavedSettings(before))

    def broken(count: int, path: str) -> None:
        if path.endswith("no_turbo"):
            raise OSError(5, "Input/output error", path)

    answer = restore(before, FakeKernel(root, broken))
    (left,) = [setting for setting in answer.settings if not setting.ok]
    assert left.path.endswith("no_turbo")
    assert "Input/output error" in left.reason
    assert FakeKernel(root).read(f"{CPU}/cpufreq/policy0/scaling_governor") == "powersave"


def test_after_a_reboot_nothing_is_put_back(tmp_path: Path) -> None:
    root = intel_active().build(tmp_path)
    before = take_snapshot(FakeKernel(root))
    apply(CpuRequest(turbo=False), FakeKernel(root), SavedSettings(before))
    write(root, "proc/sys/kernel/random/boot_id", "99999999-2222-3333-4444-555555555555")
    kernel = FakeKernel(root)
    assert restore(before, kernel).settings == ()
    assert kernel.writes == []


def test_a_clock_set_on_a_core_that_was_off_does_not_wait_there_hidden(tmp_path: Path) -> None:
    """Kernels may keep a policy while its CPUs are off: its limits must be as before when somebody turns them on."""
    root = core_off().build(tmp_path, keeps_policies=True)
    kernel = FakeKernel(root)
    saved = SavedSettings(take_snapshot(kernel))
    assert apply(CpuRequest(cores=4, min_ghz=1.2, max_ghz=1.2), kernel, saved).ok
    assert kernel.read(f"{CPU}/cpufreq/policy3/scaling_max_freq") == "1200000"
    assert apply(CpuRequest(cores=3), kernel, saved).ok
    assert restore(saved.before, kernel).ok
    assert kernel.read(f"{CPU}/cpu3/online") == "0"
    kernel.write(f"{CPU}/cpu3/online", "1")
    assert kernel.read(f"{CPU}/cpufreq/policy3/scaling_max_freq") == "4000000"


@pytest.mark.parametrize("asked", [CpuRequest(governor="performance"), CpuRequest(cores=2), CpuRequest(max_ghz=1.2)])
def test_a_clock_that_the_operator_holds_comes_back_with_its_governor(asked: CpuRequest, tmp_path: Path) -> None:
    kernel = FakeKernel(acpi_shared().build(tmp_path, keeps_policies=True))
    for name in ("policy0", "policy2"):
        kernel.write(f"{CPU}/cpufreq/{name}/scaling_governor", "userspace")
        kernel.write(f"{CPU}/cpufreq/{name}/scaling_setspeed", "1600000")
    before = all_files(tmp_path)
    saved = SavedSettings(take_snapshot(kernel))
    assert apply(asked, kernel, saved).ok
    assert all_files(tmp_path) != before
    assert restore(saved.before, kernel).ok
    assert all_files(tmp_path) == before


def test_a_preference_that_a_governor_locks_comes_back_on_siblings_that_were_off(tmp_path: Path) -> None:
    """It changes with the governor, before it is written itself."""
    root = smt_off().build(tmp_path, keeps_policies=True)
    kernel = FakeKernel(root)
    before = all_files(root)
    saved = SavedSettings(take_snapshot(kernel))
    assert apply(CpuRequest(smt=True, governor="performance", epp="performance"), kernel, saved).ok
    assert restore(saved.before, kernel).ok
    assert all_files(root) == before


def test_settings_of_the_former_driver_mode_come_back_with_it(tmp_path: Path) -> None:
    root = amd_epp().build(tmp_path)
    kernel = FakeKernel(root)
    kernel.write(f"{CPU}/cpufreq/policy2/energy_performance_preference", "balance_power")
    before = all_files(root)
    saved = SavedSettings(take_snapshot(kernel))
    assert apply(CpuRequest(driver_mode="passive", governor="ondemand"), kernel, saved).ok
    assert restore(saved.before, kernel).ok
    assert all_files(root) == before


def test_a_snapshot_survives_json(tmp_path: Path) -> None:
    snapshot = take_snapshot(FakeKernel(core_off().build(tmp_path))).with_later(
        {f"{CPU}/cpufreq/policy3/scaling_max_freq": "1"}
    )
    assert Snapshot.from_document(json.loads(json.dumps(snapshot.to_document()))) == snapshot


@pytest.mark.parametrize("path", ["etc/passwd", f"{CPU}/../../../etc/passwd", "/etc/passwd", f"{CPU}"])
def test_a_journal_that_names_other_files_is_refused(path: str, tmp_path: Path) -> None:
    document = take_snapshot(FakeKernel(core_off().build(tmp_path))).to_document()
    document["values"][path] = "x"
    with pytest.raises(InputError, match="is not a file below"):
        Snapshot.from_document(document)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"owner": "x"}', '{"owner": "x", "before": {"version": 2}}'])
def test_a_spoilt_journal_is_named_and_not_taken_for_none(text: str, tmp_path: Path) -> None:
    journal_path(tmp_path).parent.mkdir(parents=True)
    journal_path(tmp_path).write_text(text)
    with pytest.raises(UnfitError, match=str(journal_path(tmp_path))):
        read_journal(tmp_path)
