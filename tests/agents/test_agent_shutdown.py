"""Shutdown of agents and workers: no process remains, whichever dies first."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agents import protocol
from agents.protocol import VERSION, Bye, Failed, Heartbeat, Hello, Pulse, Welcome
from controller.host.process_identity import identify

pytestmark = pytest.mark.loopback

MAX_SHUTDOWN_S = 5.0
WITHOUT_CONTROLLER_S = 2.0
"""Longest time for which processes of a node may outlive their controller."""

IMPATIENT = (
    sys.executable,
    "-P",
    "-c",
    "import sys; from agents.__main__ import main; sys.exit(main(silence_s=2.0))",
)


def test_hello_has_the_version_and_the_facts_of_the_machine(start_agent):
    agent = start_agent()
    hello = agent.expect(Hello)
    assert hello.version == VERSION
    assert hello.pid == agent.pid
    assert hello.facts["hostname"] == socket.gethostname()
    assert hello.facts["cores_online"] == os.cpu_count()
    assert hello.facts["memory_bytes"] > 2**20
    again = start_agent("n2", "127.0.0.3").expect(Hello)
    assert again.facts["clock"] == hello.facts["clock"]
    assert json.loads(json.dumps(hello.facts)) == hello.facts


def test_a_pulse_carries_the_heartbeats_time_and_both_of_its_own(start_agent):
    agent = start_agent()
    agent.send(Heartbeat(sent_ns=12345))
    pulse = agent.expect(Pulse, lambda p: p.sent_ns == 12345)
    assert pulse.received_ns <= pulse.answered_ns <= time.monotonic_ns()


def test_bye_ends_the_agent_with_status_0(start_agent):
    agent = start_agent()
    agent.welcome()
    agent.send(Bye())
    assert agent.wait() == 0


@pytest.mark.parametrize("version", [0, VERSION + 1])
def test_another_protocol_version_is_reported_and_ends_the_agent(start_agent, version):
    agent = start_agent()
    agent.expect(Hello)
    agent.send(b'{"type":"welcome","version":%d,"something_new":1}\n' % version)
    failed = agent.expect(Failed)
    assert f"protocol {version}" in failed.reason
    assert failed.slot == -1
    assert agent.wait() == 1


@pytest.mark.parametrize(
    "rubbish",
    [
        b"hello\n",
        b"\xff\xfe\x00\n",
        b"[]\n",
        b'{"type":"finish"}\n',
        b'{"type":"finish","epoch":1}\n',
        b'{"type":"hello","version":1,"pid":1,"python":"","facts":{}}\n',
        b"x" * (protocol.MAX_LINE + 1),
    ],
)
def test_invalid_input_gives_one_failed_report_and_no_traceback_in_the_protocol(start_agent, rubbish):
    agent = start_agent()
    agent.expect(Hello)
    agent.send_heartbeats(False)
    agent.send(rubbish)
    assert agent.expect(Failed).slot == -1
    assert agent.wait() == 1
    assert [type(report) for report in agent.reports] == [Hello, Failed]


def test_a_command_before_welcome_and_a_second_welcome_are_refused(start_agent, wordcount):
    agent = start_agent()
    run = wordcount(agent)
    agent.expect(Hello)
    agent.send(protocol.Start(spec=run.spec()))
    assert "before Welcome" in agent.expect(Failed).reason
    assert agent.wait() == 1
    agent = start_agent()
    agent.welcome()
    agent.send(Welcome(version=VERSION, node="n1", address="127.0.0.2", folder=str(agent.folder)))
    assert "second Welcome" in agent.expect(Failed).reason
    assert agent.wait() == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"address": "192.0.2.1"}, "192.0.2.1 cannot be bound"),
        ({"address": "not-an-address"}, "not-an-address cannot be bound"),
        ({"folder": "/proc/here"}, "/proc/here cannot be used"),
        ({"node": "a/b"}, "'a/b' cannot be a file name"),
    ],
)
def test_an_unusable_node_is_reported_at_once(start_agent, tmp_path: Path, change, words):
    agent = start_agent()
    agent.expect(Hello)
    fields = {"version": VERSION, "node": "n1", "address": "127.0.0.2", "folder": str(tmp_path / "n1"), **change}
    agent.send(Welcome(**fields))
    assert words in agent.expect(Failed).reason
    assert agent.wait() == 1


@pytest.mark.parametrize("end", ["hang up", "SIGKILL", "SIGTERM", "SIGHUP"])
def test_no_worker_outlives_its_agent(start_agent, wordcount, gone_within, end):
    agent = start_agent()
    agent.welcome()
    run = wordcount(agent)
    listening = run.start()
    run.connect(listening)
    run.go()
    agent.expect_progress(lambda p: p.emitted > 0)
    tree = [identify(agent.pid), *run.processes(listening)]
    if end == "hang up":
        agent.close_input()
    else:
        os.kill(agent.pid, signal.Signals[end])
    assert gone_within(tree[:1], MAX_SHUTDOWN_S)
    assert gone_within(tree[1:], MAX_SHUTDOWN_S)
    assert agent.wait() == (-signal.SIGKILL if end == "SIGKILL" else 1)


@pytest.mark.parametrize("before", ["a worker is stopped", "server and worker are killed"])
def test_an_agent_that_loses_its_controller_waits_for_no_worker(start_agent, wordcount, gone_within, before):
    agent = start_agent()
    agent.welcome()
    run = wordcount(agent)
    listening = run.start()
    [server], _ = agent.children()
    tree = [identify(pid) for pid in (agent.pid, server)] + run.processes(listening)
    first = listening["n1/0"].pid
    if before == "a worker is stopped":
        os.kill(first, signal.SIGSTOP)
    else:
        for pid in (server, first):
            os.kill(pid, signal.SIGKILL)
        assert agent.expect(Failed).died
        agent.send(protocol.Start(spec=run.spec(2)))
        # Time for the agent to request another worker, and to find that its server has ended.
        time.sleep(0.3)
    agent.close_input()
    assert gone_within(tree, WITHOUT_CONTROLLER_S)


SLOW_TO_START = """
import subprocess, sys, time

AGENT = '''
import sys, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "%s":
            print(name, file=sys.stderr, flush=True)
            time.sleep(30)

sys.meta_path.insert(0, Slow())
from agents.__main__ import main
sys.exit(main())
'''
command = [sys.executable, "-P", "-c", AGENT % sys.argv[1]]
agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(agent.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("module", ["agents.worker.__main__", "agents.agent.agent"])
def test_an_agent_that_is_still_starting_ends_with_its_controller(gone_within, module):
    command = [sys.executable, "-P", "-c", SLOW_TO_START, module]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as controller:
        agent = identify(int(controller.stdout.readline()))
        assert controller.stderr.readline() == f"{module}\n"
        controller.kill()
    assert gone_within([agent], WITHOUT_CONTROLLER_S)


def test_an_agent_ends_when_its_controller_is_silent_beyond_the_limit(start_agent, wordcount, gone_within):
    agent = start_agent(command=IMPATIENT)
    agent.welcome()
    run = wordcount(agent)
    workers = run.processes(run.start())
    agent.send_heartbeats(False)
    assert agent.wait() == 1
    assert gone_within(workers, MAX_SHUTDOWN_S)
    assert "no heartbeat for 2 s" in (agent.folder / "logs" / "agent.log").read_text()


def test_silences_shorter_than_the_limit_are_survived(start_agent, wordcount):
    agent = start_agent(command=(*IMPATIENT[:-1], IMPATIENT[-1].replace("2.0", "6.0")))
    agent.welcome()
    run = wordcount(agent)
    run.connect(run.start())
    run.go()
    for _ in range(2):
        agent.send_heartbeats(False)
        time.sleep(3.5)
        agent.send_heartbeats(True)
        agent.expect(Pulse)
    run.drain()
    run.finish()


def test_time_in_which_the_agent_was_stopped_does_not_count_as_silence(start_agent):
    agent = start_agent(command=IMPATIENT)
    agent.welcome()
    os.kill(agent.pid, signal.SIGSTOP)
    time.sleep(3.0)
    os.kill(agent.pid, signal.SIGCONT)
    agent.send(Heartbeat(sent_ns=7))
    agent.expect(Pulse, lambda p: p.sent_ns == 7)
    agent.send(Bye())
    assert agent.wait() == 0


def test_an_agent_uses_one_socket_for_both_directions_as_under_sshd():
    ours, theirs = socket.socketpair()
    with (
        ours,
        subprocess.Popen(
            [sys.executable, "-P", "-m", "agents"], stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL
        ) as agent,
    ):
        theirs.close()
        ours.settimeout(60)
        with ours.makefile("rwb") as channel:
            assert isinstance(protocol.decode_report(channel.readline()), Hello)
            for sent_ns in range(3):
                channel.write(protocol.encode(Heartbeat(sent_ns=sent_ns)))
                channel.flush()
                pulse = protocol.decode_report(channel.readline())
                assert isinstance(pulse, Pulse)
                assert pulse.sent_ns == sent_ns
            channel.write(protocol.encode(Bye()))
            channel.flush()
            assert agent.wait(60) == 0


def test_an_agent_without_pipes_reports_that_a_controller_starts_it():
    result = subprocess.run(
        [sys.executable, "-P", "-m", "agents"], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60
    )
    assert result.returncode == 3
    assert result.stdout == b""
    assert b"started by a controller" in result.stderr
    assert b"Traceback" not in result.stderr
