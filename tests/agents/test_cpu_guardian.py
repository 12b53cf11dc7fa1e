"""Real processes: a campaign, its guardian, and kill -9 of either or both before every write."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cpu_guardian_programs
import psutil
import pytest
from fake_kernel import FakeKernel, all_files
from trees.processors import CPU, acpi_shared, core_off

from agents.cpu.control import CpuControl, Guardian, put_back
from agents.cpu.journal import Lock, journal_path
from agents.cpu.request import CpuRequest
from agents.host_files import HostFiles
from inventory.errors import RunError, UnfitError

TIMEOUT_S = 60.0


def wait_until(done: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def campaign(root: Path, death: int) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, cpu_guardian_programs.__file__, str(root), "campaign", str(death)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(command, env=environment, check=False, timeout=TIMEOUT_S, capture_output=True, text=True)


def guardians(root: Path) -> list[int]:
    """Return ids of the processes that were started as a guardian of this root."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if str(root).encode() in words and b"campaign" not in words:
                found.append(int(entry.name))
    return found


def test_kill_9_before_every_write_restores_the_original_settings(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    acpi_shared().build(whole)
    result = campaign(whole, -1)
    assert result.returncode == 0, result.stderr
    writes = int(result.stdout)
    # Writes of the change and of the restoration.
    assert writes > 15

    def die(death: int) -> None:
        root = tmp_path / str(death)
        root.mkdir()
        before = all_files(acpi_shared().build(root))
        assert campaign(root, death).returncode == -signal.SIGKILL
        assert wait_until(lambda: not guardians(root)), "the guardian does not end"
        assert all_files(root) == before, f"killed before write {death}"
        assert not journal_path(root).exists()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(die, range(writes)))


def test_when_both_are_killed_the_next_program_restores_the_settings(tmp_path: Path) -> None:
    before = all_files(core_off().build(tmp_path))
    control = CpuControl(FakeKernel(tmp_path), "a test", cpu_guardian_programs.GUARDIAN)
    control.apply(CpuRequest(cores=2, turbo=False))
    (guardian,) = guardians(tmp_path)
    os.kill(guardian, signal.SIGKILL)
    # This process stands for the dead campaign, of which only the journal remains.
    lock, _, watching = control._held or pytest.fail("nothing is held")
    watching.dismiss()
    lock.close()
    assert all_files(tmp_path) != before
    answer = put_back(FakeKernel(tmp_path), "clean")
    assert answer.ok
    assert answer.changed
    assert all_files(tmp_path) == before
    assert not put_back(FakeKernel(tmp_path), "clean").changed


def test_the_next_campaign_restores_the_settings_from_before_the_dead_one(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    before = all_files(root)
    with CpuControl(FakeKernel(root), "the first", cpu_guardian_programs.GUARDIAN) as first:
        first.set_governor("performance")
        journal = journal_path(root).read_text()
        first.restore()
    # As if the first had been killed with its guardian, after its write.
    journal_path(root).write_text(journal)
    FakeKernel(root).write(f"{CPU}/cpufreq/policy0/scaling_governor", "performance")
    with CpuControl(FakeKernel(root), "the second", cpu_guardian_programs.GUARDIAN) as second:
        second.set_governor("powersave")
        assert "ondemand" in json.loads(journal_path(root).read_text())["before"]["values"].values()
    assert all_files(root) == before


def test_a_second_campaign_is_refused_and_the_first_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.cpu.journal.PATIENCE_S", 0.1)
    root = acpi_shared().build(tmp_path)
    with CpuControl(FakeKernel(root), "campaign one of alice", cpu_guardian_programs.GUARDIAN) as first:
        first.set_frequency(1_200_000_000)
        second = CpuControl(FakeKernel(root), "campaign two of bob", cpu_guardian_programs.GUARDIAN)
        with pytest.raises(UnfitError, match="held by campaign one of alice"):
            second.set_frequency(2_000_000_000)
        with pytest.raises(UnfitError, match="held by campaign one of alice"):
            put_back(FakeKernel(root), "clean")
        assert FakeKernel(root).read(f"{CPU}/cpufreq/policy0/scaling_max_freq") == "1200000"


def test_a_guardian_that_was_killed_is_replaced_before_the_next_write(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    with CpuControl(FakeKernel(root), "a test", cpu_guardian_programs.GUARDIAN) as control:
        control.set_governor("performance")
        (old,) = guardians(root)
        os.kill(old, signal.SIGKILL)
        # Its command line is gone a little earlier than the process.
        assert wait_until(lambda: psutil.Process(old).status() == psutil.STATUS_ZOMBIE)
        control.set_governor("powersave")
        (new,) = guardians(root)
        assert new != old


def test_a_run_that_changes_nothing_leaves_no_files(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    with CpuControl(FakeKernel(root), "a test", cpu_guardian_programs.GUARDIAN) as control:
        assert control.apply(CpuRequest(governor="turbo")).refused
    assert not (root / "run").exists()
    assert not put_back(FakeKernel(root), "clean").changed
    assert not (root / "run").exists()


def test_a_guardian_that_does_not_start_leaves_the_host_unchanged(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    kernel = FakeKernel(root)
    for program in ((sys.executable, "-c", "pass"), (str(root / "no-such-program"),)):
        with pytest.raises(UnfitError, match="left unchanged"):
            CpuControl(kernel, "a test", program).set_governor("performance")
    assert kernel.writes == []
    # The lock has been released.
    Lock(root, "another").close()


def test_the_installed_guardian_restores_a_plain_tree(tmp_path: Path) -> None:
    """Test the program that runs on nodes, on plain files that do not react as a kernel does."""
    root = acpi_shared().build(tmp_path)
    before = all_files(root)
    program = """
import os, signal, sys
from pathlib import Path
from agents.cpu.control import CpuControl
from agents.cpu.request import CpuRequest
from agents.host_files import HostFiles
control = CpuControl(HostFiles(Path(sys.argv[1])), "a test")
control.apply(CpuRequest(governor="performance", min_ghz=1.2, max_ghz=1.2, turbo=False))
print("set", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    result = subprocess.run(
        [sys.executable, "-P", "-c", program, str(root)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert result.stdout == "set\n", result.stderr
    assert wait_until(lambda: not guardians(root))
    assert all_files(root) == before
    assert not journal_path(root).exists()


def test_a_difference_at_the_end_is_an_error_and_stays_in_the_journal(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    kernel = FakeKernel(root)
    control = CpuControl(kernel, "a test", cpu_guardian_programs.GUARDIAN)
    control.set_governor("performance")
    kernel.ignore(f"{CPU}/cpufreq/policy2/scaling_governor")
    with pytest.raises(RunError, match="scaling_governor is 'performance', was 'ondemand'"), control:
        pass
    assert journal_path(root).exists()
    with pytest.raises(UnfitError, match="a test has left this host changed"):
        CpuControl(FakeKernel(root), "another", cpu_guardian_programs.GUARDIAN).set_governor("powersave")


def test_the_guardian_has_its_own_session_and_no_campaign_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill of a campaign's processes, by session or by mark, must not end the guardian that restores the host."""
    monkeypatch.setenv("MILLRACE_CAMPAIGN", "marked")
    root = acpi_shared().build(tmp_path)
    lock = Lock(root, "a test")
    guardian = Guardian(root, lock)
    (pid,) = guardians(root)
    assert os.getsid(pid) == pid
    assert b"marked" not in Path(f"/proc/{pid}/environ").read_bytes()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(pid, number)
    assert guardian.is_alive
    guardian.dismiss()
    assert not guardian.is_alive
    lock.close()


def test_hosts_without_a_writable_run_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file is in the way")
    with pytest.raises(UnfitError, match="cannot be written"):
        Lock(tmp_path, "a test")
    assert not put_back(HostFiles(tmp_path), "clean").changed
