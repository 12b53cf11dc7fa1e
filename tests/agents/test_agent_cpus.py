"""CPU settings of a node: applied by its agent, and restored when any process dies."""

import os
import signal
from pathlib import Path

import pytest
from fake_kernel import all_files
from trees.processors import CPU, acpi_shared, virtual

from agents.cpu.journal import journal_path
from agents.power.reader import ROOT_VARIABLE
from agents.protocol import Bye, CpusSet, RestoreCpus, SetCpus

pytestmark = pytest.mark.loopback

REQUESTED = {"governor": "performance", "max_ghz": 1.6, "turbo": False}
GOVERNOR = f"{CPU}/cpufreq/policy0/scaling_governor"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return acpi_shared().build(tmp_path / "root")


@pytest.fixture
def agent(start_agent, root):
    started = start_agent(env={ROOT_VARIABLE: str(root)})
    started.welcome()
    return started


def is_restored(agent, root, before) -> bool:
    agent.wait_for(lambda: not journal_path(root).exists())
    return all_files(root) == before


def test_applied_settings_are_reported_and_restored_on_command(agent, root):
    before = all_files(root)
    agent.send(SetCpus(settings=REQUESTED, check=True))
    assert agent.expect(CpusSet).refused == ()
    assert all_files(root) == before
    agent.send(SetCpus(settings=REQUESTED))
    report = agent.expect(CpusSet)
    assert not report.refused
    assert {(s.setting, s.before, s.asked, s.got, s.ok) for s in report.settings} == {
        ("turbo", "1", "0", "0", True),
        ("governor of policy0", "ondemand", "performance", "performance", True),
        ("governor of policy2", "ondemand", "performance", "performance", True),
        ("upper clock limit of policy0", "3000000", "1600000", "1600000", True),
        ("upper clock limit of policy2", "3000000", "1600000", "1600000", True),
    }
    assert (root / GOVERNOR).read_text().strip() == "performance"
    agent.send(RestoreCpus())
    assert all(setting.ok for setting in agent.expect(CpusSet).settings)
    assert all_files(root) == before
    agent.send(Bye())
    assert agent.wait() == 0


def test_a_clock_in_hz_replaces_the_limits(agent):
    agent.send(SetCpus(settings={"min_ghz": 0.8, "max_ghz": 2.4}))
    agent.expect(CpusSet)
    agent.send(SetCpus(hz=1_200_000_000))
    report = agent.expect(CpusSet)
    assert [(s.setting, s.asked, s.got) for s in report.settings if "policy0" in s.setting] == [
        ("upper clock limit of policy0", "1200000", "1200000"),
        ("lower clock limit of policy0", "1200000", "1200000"),
    ]


@pytest.mark.parametrize("check", [True, False])
def test_an_impossible_setting_is_refused_with_the_possible_values(agent, root, check):
    before = all_files(root)
    agent.send(SetCpus(settings={"governor": "ondemnd"}, check=check))
    (refused,) = agent.expect(CpusSet).refused
    assert refused.startswith("governor: ondemnd")
    assert "did you mean 'ondemand'" in refused
    assert "possible: conservative" in refused
    assert all_files(root) == before


def test_a_host_without_cpufreq_refuses(start_agent, tmp_path):
    agent = start_agent(env={ROOT_VARIABLE: str(virtual().build(tmp_path))})
    agent.welcome()
    agent.send(SetCpus(settings={"max_ghz": 2.0}, check=True))
    (refused,) = agent.expect(CpusSet).refused
    assert "no cpufreq policy" in refused


@pytest.mark.parametrize("end", ["bye", "hang up", "kill -9"])
def test_settings_are_restored_when_the_agent_ends(agent, root, end):
    before = all_files(root)
    agent.send(SetCpus(settings=REQUESTED))
    assert all(setting.ok for setting in agent.expect(CpusSet).settings)
    assert all_files(root) != before
    match end:
        case "bye":
            agent.send(Bye())
        case "hang up":
            agent.close_input()
        case _:
            os.kill(agent.pid, signal.SIGKILL)
    agent.wait()
    assert is_restored(agent, root, before)


def test_a_second_campaign_is_refused_and_the_first_is_named(agent, start_agent, root):
    agent.send(SetCpus(settings=REQUESTED))
    agent.expect(CpusSet)
    other = start_agent("n9", "127.0.0.9", env={ROOT_VARIABLE: str(root)})
    other.welcome()
    for check in (True, False):
        other.send(SetCpus(settings=REQUESTED, check=check))
        (refused,) = other.expect(CpusSet).refused
        assert f"held by campaign without a name, agent of n1, process {agent.pid}" in refused
    assert (root / GOVERNOR).read_text().strip() == "performance"


def test_an_impossible_clock_is_reported_with_its_actual_value(agent):
    agent.send(SetCpus(hz=9_000_000_000))
    settings = agent.expect(CpusSet).settings
    assert {(s.asked, s.got, s.ok) for s in settings} == {("9000000", "3000000", False)}
