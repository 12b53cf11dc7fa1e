"""Agents that take over another run, and what of the last one they find first."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agents.agent import cleanliness
from agents.agent.cleanliness import Cleanliness
from agents.protocol import Failed, Reuse, Reused, Start


@pytest.mark.loopback
def test_an_agent_runs_a_second_run_in_another_folder_with_the_first_epoch(start_agent, wordcount, tmp_path: Path):
    agent = start_agent()
    hello = agent.welcome()
    servers = []
    for number in range(3):
        run = wordcount(agent)
        run.connect(run.start(sensors=["cpu", "memory", "network", "power"]))
        run.go()
        assert any(drained.positions for drained in run.drain())
        run.finish()
        servers += agent.children()[0]
        assert "count[1]" in str(run.traces(tmp_path / f"traces-{number}")["executor"]["executor"].unique())
        shutil.rmtree(agent.folder)
        agent.folder = tmp_path / "nodes" / f"n1-{number}"
        agent.folder.mkdir()
        agent.send(Reuse(folder=str(agent.folder)))
        reused = agent.expect(Reused)
        assert reused.leftovers == ()
        assert reused.facts["clock"] == hello.facts["clock"]
    assert len(set(servers)) == 1
    assert Path(f"/proc/{agent.pid}/cwd").readlink() == agent.folder
    assert f"process {agent.pid}, used again: clean" in (agent.folder / "logs/agent.log").read_text()


@pytest.mark.loopback
def test_workers_that_still_run_are_ended_before_the_next_run(start_agent, wordcount, gone_within, tmp_path: Path):
    agent = start_agent()
    agent.welcome()
    run = wordcount(agent)
    processes = run.processes(run.start())
    agent.send(Reuse(folder=str(tmp_path / "next")))
    reused = agent.expect(Reused)
    assert gone_within(processes, 0.0)
    assert [text for text in reused.leftovers if not text.startswith("files in ")] == []


@pytest.mark.loopback
def test_files_in_the_last_folder_and_unusable_new_ones_are_reported(start_agent, tmp_path: Path):
    agent = start_agent()
    agent.welcome()
    for name in ("a", "b", "c"):
        (agent.folder / name).touch()
    agent.send(Reuse(folder=str(tmp_path / "next")))
    assert agent.expect(Reused).leftovers == (f"files in {agent.folder}: a, b, c and 1 more",)
    agent.send(Reuse(folder="/proc/here"))
    assert "/proc/here cannot be used" in agent.expect(Failed).reason


@pytest.mark.loopback
def test_a_start_of_the_last_run_after_the_end_of_the_second_is_no_surprise(start_agent, wordcount, tmp_path: Path):
    # Epochs begin again, so that the first one of the second run is not taken for an old one.
    agent = start_agent()
    agent.welcome()
    run = wordcount(agent)
    run.start(epoch=7)
    run.finish(epoch=7)
    agent.folder = tmp_path / "next"
    agent.send(Reuse(folder=str(agent.folder)))
    agent.expect(Reused)
    again = wordcount(agent)
    agent.send(Start(spec=again.spec(epoch=1)))
    again.start(epoch=1)


def test_open_descriptors_are_leftovers(tmp_path: Path):
    clean = Cleanliness()
    assert clean.leftovers(tmp_path / "none", None) == []
    reading, writing = os.pipe()
    with (tmp_path / "open").open("w"):
        assert clean.leftovers(tmp_path / "none", None) == [f"3 more open descriptors: {tmp_path / 'open'}, pipe, pipe"]
    os.close(reading)
    os.close(writing)
    assert clean.leftovers(tmp_path / "none", None) == []


def test_child_processes_but_the_fork_server_are_leftovers(tmp_path: Path):
    clean = Cleanliness()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        (left,) = [text for text in clean.leftovers(tmp_path / "none", None) if "process" in text]
        assert left.startswith(f"1 processes: {child.pid} (")
        assert not [text for text in clean.leftovers(tmp_path / "none", child.pid) if "process" in text]
        child.communicate()


def test_growth_counts_from_the_end_of_the_first_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sizes = iter((80_000_000, 96_000_000, 98_000_000))
    monkeypatch.setattr(cleanliness, "_rss", lambda _pid: next(sizes))
    clean = Cleanliness()
    assert clean.leftovers(tmp_path / "none", None) == []
    assert clean.leftovers(tmp_path / "none", None) == []
    assert clean.leftovers(tmp_path / "none", None) == [f"process {os.getpid()} has grown by 18 MB"]
