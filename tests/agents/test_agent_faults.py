"""Faults of a run are reported with their cause, and the agent is ready for the next run."""

import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest

from agents.protocol import (
    Bye,
    Connect,
    Drained,
    Failed,
    Finish,
    Finished,
    Go,
    Heartbeat,
    Kill,
    Mark,
    Pulse,
    Start,
    Stop,
)
from controller.host.process_identity import identify

pytestmark = pytest.mark.loopback


def _agent_with_worker(folder: Path, body: str) -> tuple[str, ...]:
    """Return the command of an agent whose workers run `body`, for faults that a healthy worker never shows."""
    script = folder / "misbehaving.py"
    program = "from agents.worker.process.fork_server import run_fork_server"
    head = f"import os, signal, sys, time\n{program}\nrun_fork_server()\n"
    script.write_text(head + textwrap.dedent(body))
    code = f"import sys; from agents.__main__ import main; sys.exit(main(command=(sys.executable, {str(script)!r})))"
    return (sys.executable, "-P", "-c", code)


def _still_answers(agent) -> None:
    agent.send(Heartbeat(sent_ns=99))
    agent.expect(Pulse, lambda p: p.sent_ns == 99)


def _ends_well(agent, epoch: int) -> None:
    agent.send(Finish(epoch=epoch))
    agent.expect(Finished, lambda r: r.epoch == epoch)
    agent.send(Bye())
    assert agent.wait() == 0


def test_a_killed_worker_is_reported_with_its_signal_and_the_next_run_works(start_agent, wordcount, tmp_path: Path):
    agent = start_agent()
    agent.welcome()
    run = wordcount(agent)
    listening = run.start()
    run.connect(listening)
    run.go()
    agent.expect_progress(lambda p: p.emitted > 0)
    victim = listening["n1/1"]
    os.kill(victim.pid, signal.SIGKILL)
    failed = agent.expect(Failed, lambda r: r.slot == 1)
    assert f"process {victim.pid}) was killed by SIGKILL" in failed.reason
    assert failed.epoch == 1
    assert Path(failed.log) == agent.folder / "run-1" / "logs" / "worker-1.log"
    agent.send(Finish(epoch=1))
    agent.expect_after_failures(Finished)
    events = run.traces(tmp_path / "traces")["event"].to_pylist()
    assert "worker 1" in [e["subject"] for e in events if e["kind"] == "worker_failed"]

    listening = run.start(2)
    run.connect(listening, 2)
    run.go(2)
    run.drain(2)
    run.finish(2)


def test_a_worker_and_the_agent_are_killed_on_command(start_agent, wordcount):
    agent = start_agent()
    agent.welcome()
    listening = wordcount(agent).start()
    agent.send(Kill(epoch=1, slot=1))
    failed = agent.expect(Failed, lambda r: r.slot == 1)
    assert failed.died
    assert f"process {listening['n1/1'].pid}) was killed by SIGKILL" in failed.reason
    agent.send(Kill(epoch=1, slot=7))
    _still_answers(agent)
    agent.send(Kill(epoch=1))
    assert agent.wait() == -signal.SIGKILL


@pytest.mark.parametrize("started", [False, True])
def test_an_agent_that_has_not_joined_the_epoch_has_no_worker_to_kill_and_can_be_killed(
    start_agent, wordcount, started
):
    agent = start_agent()
    agent.welcome()
    if started:
        wordcount(agent).start(1)
    agent.send(Kill(epoch=2, slot=1))
    _still_answers(agent)
    agent.send(Kill(epoch=2))
    assert agent.wait() == -signal.SIGKILL


def test_messages_of_an_older_epoch_are_ignored(start_agent, wordcount):
    agent = start_agent()
    agent.welcome()
    run = wordcount(agent)
    run.start(3)
    run.finish(3)
    listening = run.start(5)
    workers = run.processes(listening)
    for epoch in (3, 4):
        for old in (
            Start(spec=run.spec(epoch)),
            Connect(epoch=epoch, ports={"n1/0": 1, "n1/1": 1}),
            Go(epoch=epoch, at_ns=0),
            Mark(epoch=epoch, kind="old"),
            Stop(epoch=epoch),
            Finish(epoch=epoch),
        ):
            agent.send(old)
    agent.send(Start(spec=run.spec(5)))
    _still_answers(agent)
    run.connect(listening, 5)
    run.go(5)
    agent.expect_progress(lambda p: p.epoch == 5 and p.emitted > 0)
    assert all(worker.is_alive() for worker in workers)
    run.drain(5)
    run.finish(5)
    assert {report.epoch for report in agent.reports if isinstance(report, Finished | Drained)} == {3, 5}


def test_a_start_of_another_run_ends_the_one_that_still_runs(start_agent, wordcount, gone_within):
    agent = start_agent()
    agent.welcome()
    run = wordcount(agent)
    first = run.start(1)
    run.connect(first, 1)
    run.go(1)
    old = run.processes(first)
    second = run.start(2, run="run-2")
    assert gone_within(old, 0.0)
    run.connect(second, 2)
    run.drain(2)
    run.finish(2)


def test_a_changed_or_missing_input_is_refused_by_name(start_agent, wordcount):
    agent = start_agent()
    agent.welcome()
    run = wordcount(agent)
    copy = agent.folder / "inputs" / run.inputs[0].path.name
    copy.write_bytes(copy.read_bytes().replace(b"be", b"bE", 1))
    agent.send(Start(spec=run.spec(1)))
    failed = agent.expect(Failed)
    assert failed.slot == -1
    assert str(copy) in failed.reason
    assert "'text' differs" in failed.reason
    assert run.inputs[0].sha256 in failed.reason
    run.finish(1)
    copy.unlink()
    agent.send(Start(spec=run.spec(2)))
    failed = agent.expect(Failed)
    assert "'text' is missing" in failed.reason
    _ends_well(agent, 2)


def test_an_input_outside_the_input_folder_is_refused(start_agent, wordcount):
    agent = start_agent()
    agent.welcome()
    run = wordcount(agent)
    inputs = (run.spec().inputs[0].__class__("text", "../secret", "0" * 64),)
    agent.send(Start(spec=run.spec(1, inputs=inputs)))
    assert "'../secret' cannot be a file name" in agent.expect(Failed).reason
    _ends_well(agent, 1)


def test_a_run_that_names_no_executor_of_this_node_has_no_workers(start_agent, wordcount, tmp_path: Path):
    busy, idle = start_agent("n1", "127.0.0.2"), start_agent("n2", "127.0.0.3")
    busy.welcome()
    idle.welcome()
    run = wordcount(busy)
    idle.send(Start(spec=run.spec(1, inputs=()), sensors=("cpu",)))
    idle.send(Mark(epoch=1, kind="measure_start"))
    _ends_well(idle, 1)
    assert list((idle.folder / "run-1" / "logs").iterdir()) == []
    run.agents = [idle]
    traces = run.traces(tmp_path / "traces")
    assert traces["event"]["kind"].to_pylist().count("measure_start") == 1
    assert traces["clock"].num_rows > 0


def test_a_run_whose_name_is_no_file_name_is_refused(start_agent, wordcount):
    agent = start_agent()
    agent.welcome()
    run = wordcount(agent)
    agent.send(Start(spec=run.spec(1, run="../elsewhere")))
    assert "'../elsewhere' cannot be a file name" in agent.expect(Failed).reason
    _ends_well(agent, 1)


def test_a_worker_whose_workload_cannot_be_loaded_reports_why(start_agent, wordcount):
    agent = start_agent()
    agent.welcome()
    run = wordcount(agent)
    agent.send(Start(spec=run.spec(1, workload="wordcont")))
    assert "did you mean 'wordcount'" in agent.expect(Failed).reason
    agent.send(Finish(epoch=1))
    agent.expect_after_failures(Finished)


def test_a_worker_that_ignores_sigterm_is_killed(start_agent, wordcount, gone_within, tmp_path: Path):
    body = """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("I stay", file=sys.stderr, flush=True)
        while True:
            time.sleep(60)
    """
    agent = start_agent(command=_agent_with_worker(tmp_path, body))
    agent.welcome()
    run = wordcount(agent, slots=1)
    agent.send(Start(spec=run.spec()))
    log = agent.folder / "run-1" / "logs" / "worker-0.log"
    agent.wait_for(lambda: log.exists() and "I stay" in log.read_text())
    worker = identify(agent.worker())
    agent.close_input()
    assert gone_within([worker], 5.0)
    assert agent.wait() == 1


def test_a_helper_that_a_dead_worker_left_behind_is_ended_and_does_not_hide_the_death(
    start_agent, wordcount, gone_within, tmp_path: Path
):
    body = f"""
        helper = os.fork()
        if helper == 0:
            time.sleep(600)
        open({str(tmp_path / "helper.tmp")!r}, "w").write(str(helper))
        os.rename({str(tmp_path / "helper.tmp")!r}, {str(tmp_path / "helper")!r})
        sys.stdin.readline()
        sys.stdin.readline()
        time.sleep(1)
        print("out of luck", file=sys.stderr, flush=True)
        os._exit(7)
    """
    agent = start_agent(command=_agent_with_worker(tmp_path, body))
    agent.welcome()
    run = wordcount(agent, slots=1)
    agent.send(Start(spec=run.spec()))
    agent.wait_for((tmp_path / "helper").exists)
    helper = identify(int((tmp_path / "helper").read_text()))
    failed = agent.expect(Failed)
    assert "ended with status 7; the last line of its log: out of luck" in failed.reason
    assert gone_within([helper], 5.0)
    _ends_well(agent, 1)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("print('Hello, operator here')", "not a report"),
        ("""print('{"type":"finished","epoch":1}')""", "cannot send Finished"),
        ("""print('{"type":"connected","epoch":1,"slot":3}')""", "has sent a report for epoch 1, slot 3"),
        ("""print('{"type":"connected","epoch":2,"slot":0}')""", "has sent a report for epoch 2, slot 0"),
        ("""print("x" * (17 * 1024 * 1024))""", "a line of more than"),
    ],
)
def test_a_worker_that_sends_invalid_reports_is_ended(start_agent, wordcount, gone_within, tmp_path: Path, line, words):
    # The worker writes its own pid: a process that has just been forked may still become the fork server.
    pid_file = tmp_path / "worker"
    write_pid = f"open({str(pid_file)!r}, 'w').write(str(os.getpid()) + ' ')"
    agent = start_agent(
        command=_agent_with_worker(tmp_path, f"{write_pid}\ntime.sleep(1)\n{line}\nsys.stdout.flush()\ntime.sleep(600)")
    )
    agent.welcome()
    run = wordcount(agent, slots=1)
    agent.send(Start(spec=run.spec()))
    agent.wait_for(lambda: pid_file.exists() and pid_file.read_text().endswith(" "))
    worker = identify(int(pid_file.read_text()))
    failed = agent.expect(Failed)
    assert words in failed.reason
    assert failed.slot == 0
    assert gone_within([worker], 5.0)
    _ends_well(agent, 1)


def test_reports_of_an_older_epoch_are_not_forwarded(start_agent, wordcount, tmp_path: Path):
    body = """
        print('{"type":"listening","epoch":6,"slot":0,"pid":1,"port":1}', flush=True)
        print('{"type":"listening","epoch":7,"slot":0,"pid":2,"port":2}', flush=True)
        sys.stdin.read()
    """
    agent = start_agent(command=_agent_with_worker(tmp_path, body))
    agent.welcome()
    run = wordcount(agent, slots=1)
    assert run.start(7)["n1/0"].pid == 2
    assert not [report for report in agent.reports if getattr(report, "epoch", 7) == 6]
    _ends_well(agent, 7)


def test_source_positions_of_an_older_epoch_are_forwarded(start_agent, wordcount, tmp_path: Path):
    body = """
        work = '{"s[0]":[9,null,null,0,0,null,9]}'
        print('{"type":"progress","epoch":6,"slot":0,"at_ns":1,"emitted":9,"sunk":0,"executors":' + work + '}')
        print('{"type":"listening","epoch":7,"slot":0,"pid":2,"port":2}', flush=True)
        sys.stdin.read()
    """
    agent = start_agent(command=_agent_with_worker(tmp_path, body))
    agent.welcome()
    run = wordcount(agent, slots=1)
    run.start(7)
    (progress,) = (report for report in agent.metrics if report.epoch == 6)
    assert progress.executors["s[0]"].position == 9
    _ends_well(agent, 7)
