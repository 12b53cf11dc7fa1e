"""`millrace clean` and the next agent restore the CPU settings of a crashed agent."""

import os
import signal
from pathlib import Path

import cpu_guardian_programs
import pytest
from fake_kernel import FakeKernel, all_files
from trees.processors import CPU, acpi_shared

from agents.agent.agent import _put_back_cpus
from agents.cpu.control import CpuControl
from agents.cpu.journal import journal_path
from agents.cpu.request import CpuRequest
from campaign.runner.clean import clean


@pytest.fixture(autouse=True)
def no_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.cpu.journal.PATIENCE_S", 0.1)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def host(tmp_path: Path) -> FakeKernel:
    (tmp_path / "host").mkdir()
    return FakeKernel(acpi_shared().build(tmp_path / "host"))


def kill_with_guardian(control: CpuControl) -> None:
    """Simulate SIGKILL of an agent and of its guardian: only files remain."""
    assert control._held
    lock, _, guardian = control._held
    os.kill(guardian._process.pid, signal.SIGKILL)
    guardian.dismiss()
    lock.close()


def test_clean_restores_the_settings_of_a_killed_agent_and_guardian(host: FakeKernel) -> None:
    before = all_files(host.root)
    control = CpuControl(host, "a campaign", cpu_guardian_programs.GUARDIAN)
    control.apply(CpuRequest(governor="performance", cores=3))
    kill_with_guardian(control)
    outcome = clean(host)
    assert outcome.failed == []
    assert f"CPU setting /{CPU}/cpufreq/policy0/scaling_governor (performance is ondemand again)" in outcome.done
    assert all_files(host.root) == before
    assert clean(host).done == []


def test_clean_does_not_change_a_running_campaign(host: FakeKernel) -> None:
    with CpuControl(host, "campaign one of alice", cpu_guardian_programs.GUARDIAN) as control:
        control.set_governor("performance")
        outcome = clean(host)
        assert outcome.running == ["campaign one of alice (it has set this host's CPUs)"]
        assert outcome.done == []
        assert host.read(f"{CPU}/cpufreq/policy0/scaling_governor") == "performance"


def test_clean_reports_settings_that_it_cannot_restore(host: FakeKernel) -> None:
    control = CpuControl(host, "a campaign", cpu_guardian_programs.GUARDIAN)
    control.set_governor("performance")
    kill_with_guardian(control)
    host.ignore(f"{CPU}/cpufreq/policy2/scaling_governor")
    (failure,) = clean(host).failed
    assert f"/{CPU}/cpufreq/policy2/scaling_governor is 'performance', was 'ondemand'" in failure
    host.ignore()
    assert clean(host).failed == []


def test_a_corrupt_journal_is_a_failure_that_names_it(host: FakeKernel) -> None:
    journal_path(host.root).parent.mkdir(parents=True)
    journal_path(host.root).write_text("{")
    (failure,) = clean(host).failed
    assert str(journal_path(host.root)) in failure


def test_the_next_agent_restores_the_settings_of_a_dead_one(host: FakeKernel, caplog: pytest.LogCaptureFixture) -> None:
    before = all_files(host.root)
    control = CpuControl(host, "a campaign", cpu_guardian_programs.GUARDIAN)
    control.set_governor("performance")
    _put_back_cpus(host)
    assert "held by a campaign" in caplog.text
    assert host.read(f"{CPU}/cpufreq/policy0/scaling_governor") == "performance"
    kill_with_guardian(control)
    _put_back_cpus(host)
    assert "left CPU settings behind: restored" in caplog.text
    assert all_files(host.root) == before
