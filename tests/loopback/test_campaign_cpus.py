"""Campaigns with CPU settings: results record what took effect, and settings are restored when any process dies."""

import os
import signal
from pathlib import Path

import pytest
from fake_kernel import all_files
from trees.processors import CPU, acpi_shared, virtual, write

from agents.cpu.journal import journal_path
from agents.power.reader import ROOT_VARIABLE

pytestmark = [pytest.mark.loopback, pytest.mark.long]

ONE = "nodes:\n  - {id: n1, address: 127.0.0.2, class: big, slots: 2}\n"
GOVERNOR = f"{CPU}/cpufreq/policy0/scaling_governor"


@pytest.fixture
def root(workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Root of a fake sysfs; the cluster of the workspace is a single node."""
    (workspace.folder / "one.yaml").write_text(ONE)
    (tmp_path / "root").mkdir()
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "root"))
    return tmp_path / "root"


def agenda(workspace, cpu: object, **changes: object) -> str:
    entries = {"inventory": "one.yaml", "schedulers": ["even"], "sensors": [], "cpu": cpu}
    return workspace.agenda(**{**entries, **changes})


def test_each_label_is_set_and_restored_and_a_disturbed_run_is_suspect(workspace, root) -> None:
    before = all_files(acpi_shared().build(root))
    cpu = [
        {"label": "slow", "nodes": {"*": {"max_ghz": 1.2, "turbo": False}, "big": {"max_ghz": 1.6}}},
        {"label": "fast", "nodes": {"*": {"governor": "performance"}}},
    ]
    process = workspace.start("run", agenda(workspace, cpu, checkpoint_s=0.5, duration_s=3))
    workspace.wait_for_stage(1, "measuring")
    write(root, f"{CPU}/cpufreq/policy2/scaling_min_freq", "1200000")
    workspace.wait_for_stage(2, "measuring")
    assert (root / GOVERNOR).read_text().strip() == "performance"
    (agent,) = workspace.processes("agent")[:1]
    os.kill(agent.pid, signal.SIGKILL)
    outcome = workspace.wait_for_end(process)
    assert outcome.status == 0, outcome
    slow, fast = workspace.results().values()
    assert [(r["cpu_settings"], r["status"]) for r in (slow, fast)] == [("slow", "ok"), ("fast", "ok")]
    rows = {row["setting"]: row for row in slow["cpu"]}
    assert rows.keys() == {"turbo", "upper clock limit of policy0", "upper clock limit of policy2"}
    assert rows["upper clock limit of policy0"] == {
        "node": "n1",
        "setting": "upper clock limit of policy0",
        "before": "3000000",
        "asked": "1600000",
        "got": "1600000",
        "ok": True,
        "reason": "",
    }
    assert workspace.suspect_reasons(slow) == ["n1: policy2/scaling_min_freq: 800000 -> 1200000: not by this run"]
    assert [(row["setting"], row["got"]) for row in fast["cpu"]] == [
        ("governor of policy0", "performance"),
        ("governor of policy2", "performance"),
    ]
    died, recovered = workspace.suspect_reasons(fast)
    assert died == "n1: its agent died, and its CPUs were set again"
    assert recovered.startswith("1 recovery")
    assert all_files(root) == before
    assert not journal_path(root).exists()


def test_a_killed_controller_leaves_no_setting_behind(workspace, root) -> None:
    before = all_files(acpi_shared().build(root))
    process = workspace.start("run", agenda(workspace, {"*": {"governor": "performance"}}, duration_s=60))
    workspace.wait_for_stage(1, "measuring")
    assert all_files(root) != before
    process.send_signal(signal.SIGKILL)
    workspace.wait_for(lambda: not journal_path(root).exists(), "the end of the journal")
    assert all_files(root) == before
    workspace.wait_until_no_process()


def test_unsupported_settings_are_refused_before_anything_is_written(workspace, root) -> None:
    acpi_shared().build(root)
    cpu = [{"label": "a", "nodes": {"*": {"governor": "performance"}}}, {"label": "b", "nodes": {"big": {"cores": 9}}}]
    outcome = workspace.run("run", agenda(workspace, cpu))
    assert outcome.status == 3, outcome
    assert "node n1: cores: 9" in outcome.err
    assert "possible: 1 to 4" in outcome.err
    later = {"at_s": 1, "do": "set_cpu", "node": "n1", "settings": {"cores": 8}}
    outcome = workspace.run("run", agenda(workspace, None, timeline=[later]))
    assert outcome.status == 3, outcome
    assert "node n1: cores: 8" in outcome.err
    assert not (workspace.folder / "results").exists()


def test_a_machine_without_cpufreq_and_nodes_that_share_one_are_refused(workspace, root) -> None:
    virtual().build(root)
    outcome = workspace.run("run", agenda(workspace, {"*": {"max_ghz": 2}}))
    assert outcome.status == 3, outcome
    assert "node n1: max_ghz: 2: no cpufreq policy (usual in virtual machines" in outcome.err
    outcome = workspace.run("run", "--dry-run", agenda(workspace, {"*": {"max_ghz": 2}}, inventory="two.yaml"))
    assert outcome.status == 3, outcome
    assert "the nodes n1, n2 are one machine" in outcome.err
