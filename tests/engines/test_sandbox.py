"""Processes in separate namespaces: no connections from outside, named exits, and no processes left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from engines.child_processes import EngineProcess
from engines.sandbox import Sandbox
from inventory.errors import UnfitError

pytestmark = pytest.mark.loopback

LISTEN = """\
import socket, time
listening = socket.create_server(("0.0.0.0", 45917))
print("up", flush=True)
time.sleep(600)
"""


def python(name: str, code: str, log: Path) -> EngineProcess:
    return EngineProcess(name, (sys.executable, "-c", code), str(log))


async def until(path: Path, text: str) -> None:
    while not path.exists() or text not in path.read_text():
        await asyncio.sleep(0.02)


def test_ports_cannot_be_reached_from_outside_and_children_end_with_the_sandbox(tmp_path: Path) -> None:
    marker = f"sandbox-{os.getpid()}-child"
    spawn = (
        f"import subprocess, time\nsubprocess.Popen(['sleep', '600'], env={{}}, start_new_session=True)\n#{marker}\n"
    )

    async def run() -> None:
        processes = [
            python("a server", LISTEN, tmp_path / "a"),
            python("b", spawn + LISTEN.replace("17", "18"), tmp_path / "b"),
        ]
        try:
            async with Sandbox(processes) as sandbox:
                await until(tmp_path / "a", "up")
                await until(tmp_path / "b", "up")
                with pytest.raises(ConnectionRefusedError):
                    await asyncio.open_connection("127.0.0.1", 45917)
                inside.extend([sandbox.pid("a server"), *(c.pid for c in psutil.Process(sandbox.pid("b")).children())])
                assert len(inside) == 2
                assert sandbox.host_pid(999_999) is None
                assert not sandbox.failed.done()
        except UnfitError as error:
            pytest.skip(str(error))

    inside: list[int] = []
    asyncio.run(run())
    assert not any(map(psutil.pid_exists, inside))


def test_a_process_that_ends_is_named_with_its_signal(tmp_path: Path) -> None:
    async def run() -> str:
        try:
            async with Sandbox([python("the server", LISTEN, tmp_path / "a")]) as sandbox:
                os.kill(sandbox.pid("the server"), signal.SIGKILL)
                return await asyncio.wait_for(asyncio.shield(sandbox.failed), 60)
        except UnfitError as error:
            pytest.skip(str(error))

    assert asyncio.run(run()) == "the server ended by signal 9"


def test_a_missing_command_is_an_error_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async def run() -> None:
        async with Sandbox([EngineProcess("x", ("/no/such/program",), str(tmp_path / "x"))]):
            pytest.fail("it has started")

    with pytest.raises(UnfitError, match=r"no such program|No such file|namespaces"):
        asyncio.run(run())


CONTROLLER = """\
import asyncio, sys
from engines.child_processes import EngineProcess
from engines.sandbox import Sandbox

async def main():
    async with Sandbox([EngineProcess("s", ("sleep", "600"), sys.argv[1])]) as sandbox:
        print(sandbox.pid("s"), flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def test_killing_the_controller_ends_all_processes(tmp_path: Path) -> None:
    controller = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert controller.stdout is not None
    line = controller.stdout.readline()
    controller.kill()
    _, errors = controller.communicate()
    if not line:
        pytest.skip(errors.splitlines()[-1])
    deadline = time.monotonic() + 60
    while psutil.pid_exists(int(line)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
