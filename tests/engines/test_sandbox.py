"""Commands in separate namespaces: no connections from outside, and no processes left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from engines.sandbox import SANDBOX, check_sandbox
from inventory.errors import UnfitError

pytestmark = pytest.mark.loopback

LISTEN = """\
import socket, subprocess, sys
child = subprocess.Popen(["sleep", "600"], env={}, start_new_session=True)
listening = socket.create_server(("0.0.0.0", 45917))
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def sandboxed() -> Iterator[subprocess.Popen[str]]:
    """A sandbox whose command listens, has a child in another session, and ends with its input."""
    try:
        check_sandbox()
    except UnfitError as error:
        pytest.skip(str(error))
    command = [*SANDBOX, sys.executable, "-c", LISTEN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process
        process.kill()


def inside(sandbox: subprocess.Popen[str]) -> list[psutil.Process]:
    found = psutil.Process(sandbox.pid).children(recursive=True)
    assert len(found) == 3  # the first process, the command, its child
    return found


def wait_until_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, 60)
    assert not alive


def test_ports_cannot_be_reached_from_outside_and_children_end_with_the_command(
    sandboxed: subprocess.Popen[str],
) -> None:
    probe = "import socket\nsocket.create_connection(('127.0.0.1', 45917), 5)"
    outside = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert "ConnectionRefusedError" in outside.stderr
    processes = inside(sandboxed)
    assert sandboxed.stdin is not None
    sandboxed.stdin.close()
    assert sandboxed.wait(60) == 0
    assert not any(process.is_running() for process in processes)


def test_killing_the_sandbox_ends_all_processes(sandboxed: subprocess.Popen[str]) -> None:
    processes = inside(sandboxed)
    sandboxed.kill()
    wait_until_gone(processes)


def test_the_exit_status_of_the_command_is_passed_on(sandboxed: subprocess.Popen[str]) -> None:
    _, command, _ = sorted(inside(sandboxed), key=lambda process: process.pid)
    os.kill(command.pid, signal.SIGKILL)
    assert sandboxed.wait(60) == 128 + signal.SIGKILL
    done = subprocess.run([*SANDBOX, "sh", "-c", "exit 5"], check=False)
    assert done.returncode == 5


def test_a_missing_command_is_an_error() -> None:
    done = subprocess.run([*SANDBOX, "/no/such/program"], capture_output=True, text=True, check=False)
    assert done.returncode
    assert "/no/such/program" in done.stderr or "namespaces" in done.stderr


def test_a_host_without_namespaces_for_this_user_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    without = (
        "import sys; from engines import sandbox; from unittest import mock\n"
        "with mock.patch.object(sandbox, 'unshare', side_effect=OSError(1, 'not permitted')):\n"
        "    sys.exit(sandbox.main(sys.argv[1:]))"
    )
    monkeypatch.setattr("engines.sandbox.SANDBOX", (sys.executable, "-P", "-c", without))
    with pytest.raises(UnfitError, match=r"cannot be started apart from others: this host has no namespaces"):
        check_sandbox()
