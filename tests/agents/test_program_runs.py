"""Runs of programs under a node agent: their start, reports, commands and ends, and what is refused."""

import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from agents.protocol import (
    AGENT,
    Bye,
    Equip,
    Equipped,
    Failed,
    Finish,
    Finished,
    Launch,
    Launched,
    Lines,
    Mark,
    Message,
    Program,
    RestoreCpus,
    Stop,
    Write,
    Written,
)

ORPHANS = """\
import subprocess, time
subprocess.Popen(["sleep", "600"], env={}, start_new_session=True)
print("begun", flush=True)
time.sleep(600)
"""

REPORTING = """\
import os, pathlib, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open(f"reports/n1-3-{worker.pid}.tsv", "w") as report:
    report.write("open\\t1\\nunfin")
    report.flush()
    while not pathlib.Path("control/finish").exists():
        time.sleep(0.02)
    report.write("ished\\n")
pathlib.Path("reports/another.tsv").write_text("x\\n")
worker.kill()
worker.wait()
time.sleep(600)
"""


def program(agent: Any, code: str, name: str = "the daemon") -> Program:
    return Program(name, (sys.executable, "-c", code), str(agent.folder / "run" / "logs" / "deep" / "daemon.log"))


@pytest.fixture
def agent(start_agent: Callable[..., Any]) -> Any:
    started = start_agent()
    started.welcome()
    return started


def launch(agent: Any, code: str, **options: object) -> psutil.Process:
    agent.send(Equip(epoch=1, run="run", folders=("control", "reports")))
    agent.expect(Equipped)
    agent.send(Launch(epoch=1, programs=(program(agent, code),), **options))  # type: ignore[arg-type]
    return psutil.Process(agent.expect(Launched).pids["the daemon"])


def with_orphan(agent: Any) -> list[psutil.Process]:
    daemon = launch(agent, ORPHANS)
    agent.wait_for(lambda: bool(daemon.children()))
    return [daemon, *daemon.children()]


def test_programs_report_follow_commands_and_end_with_the_run(agent: Any) -> None:
    daemon = launch(agent, REPORTING, sensors=("cpu",), daemon="the daemon", reports="reports")
    first = agent.expect(Lines)
    assert (first.file, first.text) == (f"n1-3-{daemon.children()[0].pid}.tsv", "open\t1\n")
    agent.send(Mark(epoch=1, kind="measure_start"))
    agent.send(Write(epoch=1, file="control/finish", text="now"))
    agent.expect(Written)
    assert agent.expect(Lines).text == "unfinished\n"
    gone = agent.expect(Failed)
    assert (gone.slot, gone.died) == (3, True)
    assert (agent.folder / "run" / "control" / "finish").read_text() == "now"
    agent.send(Finish(epoch=1))
    agent.expect(Finished)
    assert not daemon.is_running()
    assert (agent.folder / "run" / "kept-logs" / "deep-daemon.log").exists()
    (trace,) = (agent.folder / "run" / "traces").glob("n1*.trace")
    assert b"measure_start" in trace.read_bytes()
    agent.send(Bye())
    assert agent.wait() == 0
    assert not any(isinstance(report, Lines) and "another" in report.file for report in agent.reports)


def test_a_program_that_ends_is_named_and_its_orphans_end_with_the_run(agent: Any) -> None:
    daemon, orphan = with_orphan(agent)
    daemon.kill()
    failed = agent.expect(Failed)
    assert (failed.slot, failed.reason, failed.died) == (AGENT, "the daemon was killed by SIGKILL", True)
    assert failed.log.endswith("daemon.log")
    assert orphan.is_running()
    agent.send(Finish(epoch=1))
    agent.expect(Finished)
    assert not orphan.is_running()
    servers, _ = agent.children()
    assert servers  # what the agent has started for itself stays


@pytest.mark.parametrize("how", ["end of input", "signal", "silence"])
def test_nothing_is_left_when_the_controller_is_gone(start_agent: Callable[..., Any], how: str) -> None:
    command = (sys.executable, "-P", "-c", "import sys; from agents.__main__ import main; sys.exit(main(silence_s=2))")
    agent = start_agent(command=command)
    agent.welcome()
    processes = with_orphan(agent)
    if how == "end of input":
        agent.close_input()
    elif how == "signal":
        os.kill(agent.pid, signal.SIGTERM)
    else:
        agent.send_heartbeats(False)
    assert agent.wait() == 1
    assert not any(process.is_running() for process in processes)


def test_programs_end_with_an_agent_that_is_killed(agent: Any) -> None:
    daemon, orphan = with_orphan(agent)
    os.kill(agent.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs([daemon], 30)
    assert not alive
    orphan.kill()  # without the lease of a node, whose daemon ends it


def test_a_command_that_cannot_be_started_is_a_failure_and_leaves_nothing(agent: Any) -> None:
    agent.send(Equip(epoch=1, run="run"))
    agent.expect(Equipped)
    missing = Program("x", ("/no/such/program",), str(agent.folder / "run" / "x.log"))
    agent.send(Launch(epoch=1, programs=(program(agent, ORPHANS), missing)))
    assert "/no/such/program" in agent.expect(Failed).reason
    agent.send(Finish(epoch=1))
    agent.expect(Finished)
    _, others = agent.children()
    assert not others


def test_ports_are_held_until_the_programs_start(agent: Any) -> None:
    agent.send(Equip(epoch=1, run="run", ports=2))
    first = agent.expect(Equipped).first_port
    assert first >= 20_000
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("", first))
    listen = f"""\
import socket, time
held = [socket.create_server(("", port)) for port in ({first}, {first + 1})]
print("begun", flush=True)
time.sleep(600)
"""
    agent.send(Launch(epoch=1, programs=(program(agent, listen),)))
    agent.expect(Launched)
    log = agent.folder / "run" / "logs" / "deep" / "daemon.log"
    agent.wait_for(lambda: log.read_text() == "begun\n")


def test_libraries_that_have_been_copied_are_kept_for_later_campaigns(
    start_agent: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    for number, has_them in enumerate((False, True), 1):
        agent = start_agent(node=f"n{number}", env={"MILLRACE_WORK": str(tmp_path / "work")})
        agent.welcome()
        agent.send(Equip(epoch=1, run="run", libraries="any-1"))
        assert agent.expect(Equipped).has_libraries is has_them
        if not has_them:
            (agent.folder / "run" / "jars").mkdir()
            (agent.folder / "run" / "jars" / "any.jar").write_text("a jar")
        agent.send(Launch(epoch=1, programs=()))
        agent.expect(Launched)
        assert (agent.folder / "run" / "lib-worker" / "any.jar").read_text() == "a jar"


EQUIP, LAUNCH = Equip(epoch=1, run="run"), Launch(epoch=1, programs=())


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([Equip(epoch=1, run="../run")], "the run '../run' cannot be a file name"),
        ([Equip(epoch=1, run="run", folders=("../x",))], "does not lie below"),
        ([Equip(epoch=1, run="run", libraries="any")], "MILLRACE_WORK is not set"),
        ([EQUIP, EQUIP], "Equip after another run"),
        ([EQUIP, LAUNCH, LAUNCH], "a second Launch"),
        ([EQUIP, Stop(epoch=1)], "Stop for a run of programs"),
        ([EQUIP, Write(epoch=1, file="../x", text="")], "does not lie below"),
        ([Write(epoch=1, file="x", text="")], "Write of epoch 1, which was never started here"),
        ([RestoreCpus(), EQUIP, Launch(epoch=2, programs=())], "Launch of epoch 2, which was never started here"),
    ],
)
def test_commands_that_do_not_fit_end_the_agent(agent: Any, messages: list[Message], reason: str) -> None:
    for message in messages:
        agent.send(message)
    assert reason in agent.expect(Failed).reason
    assert agent.wait() == 1
