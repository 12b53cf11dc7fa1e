"""Connections to real sshds: trusted keys, logins, jump hosts, broken connections."""

import asyncio
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace
from sshd import Lab, keygen, lab

from controller.ssh import backend
from controller.ssh import connection as module
from controller.ssh.connection import Connection
from controller.ssh.program import open_command
from controller.ssh.settings import ssh_settings
from inventory.ansible_hosts import InventoryHost
from inventory.errors import InputError, RunError, UnfitError

pytestmark = pytest.mark.sshd

T = TypeVar("T")
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab")) as running_lab:
        yield running_lab


@pytest.fixture
def known_hosts(nodes: Lab) -> Iterator[Path]:
    """The known_hosts file, restored afterwards."""
    before = nodes.known_hosts.read_text()
    yield nodes.known_hosts
    nodes.known_hosts.write_text(before)


def connected(host: InventoryHost, use: Callable[[Connection], Awaitable[T]]) -> T:
    async def live() -> T:
        with ThreadPoolExecutor() as threads:
            connection = Connection(host, threads, ssh_settings(host))
            try:
                return await asyncio.wait_for(use(connection), TIMEOUT_S)
            finally:
                await connection.close()

    return asyncio.run(live())


async def run_command(connection: Connection, command: str) -> tuple[int, bytes, bytes]:
    """Run a command; return its exit status, output and errors."""
    with await open_command(connection, command) as channel:

        def finish() -> tuple[int, bytes, bytes]:
            out, err = channel.makefile("rb").read(), channel.makefile_stderr("rb").read()
            return channel.recv_exit_status(), out, err

        return await connection.run_blocking(finish)


async def hello(connection: Connection) -> bytes:
    return (await run_command(connection, "echo hello"))[1]


def with_config(host: InventoryHost, config: Path) -> InventoryHost:
    return replace(
        host,
        ssh_host="node",
        ssh_port=None,
        ssh_user=os.environ.get("USER") or "root",
        ssh_key=None,
        ssh_args=("-F", str(config)),
    )


def test_output_and_status_of_a_command_are_returned(nodes: Lab) -> None:
    done = connected(nodes.host("n1"), lambda c: run_command(c, "echo out; echo err >&2; exit 7"))
    assert done == (7, b"out\n", b"err\n")


def test_an_unknown_host_is_refused_with_the_command_that_accepts_it(nodes: Lab, known_hosts: Path) -> None:
    known_hosts.write_text(nodes.nodes["n2"].known_host)
    logins = nodes.nodes["n1"].log.count("Accepted publickey")
    with pytest.raises(UnfitError) as refused:
        connected(nodes.host("n1"), hello)
    message = str(refused.value)
    fingerprint = subprocess.run(
        ["ssh-keygen", "-lf", nodes.nodes["n1"].folder / "host_key.pub"], capture_output=True, text=True, check=True
    )
    assert fingerprint.stdout.split()[1] in message
    assert nodes.nodes["n1"].log.count("Accepted publickey") == logins
    subprocess.run(shlex.split(message.partition("accept it: ")[2]), check=True, timeout=TIMEOUT_S, capture_output=True)
    assert connected(nodes.host("n1"), hello) == b"hello\n"


def test_a_host_whose_key_has_changed_is_refused(nodes: Lab, known_hosts: Path) -> None:
    first, second = nodes.nodes["n1"], nodes.nodes["n2"]
    known_hosts.write_text(
        second.known_host.replace(second.address, first.address).replace(str(second.port), str(first.port))
    )
    with pytest.raises(
        UnfitError, match=re.escape(f"forget its old key: ssh-keygen -R '[{first.address}]:{first.port}'")
    ):
        connected(nodes.host("n1"), hello)


def test_a_login_without_the_right_key_fails_with_the_command_that_must_work(nodes: Lab, tmp_path: Path) -> None:
    keygen(tmp_path / "other")
    with pytest.raises(
        UnfitError, match=r"node n1: no login by key \(.*\); this must work without a question: ssh .* true$"
    ):
        connected(replace(nodes.host("n1"), ssh_key=tmp_path / "other"), hello)


def test_a_key_may_be_in_the_ssh_agent(nodes: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL) as agent:
        try:
            while not path.exists():
                time.sleep(0.01)
            monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
            subprocess.run(["ssh-add", "-q", nodes.key], check=True, capture_output=True)
            arguments = ("-F", "none", "-o", f"UserKnownHostsFile={nodes.known_hosts}")
            host = replace(nodes.host("n1"), ssh_key=None, ssh_args=arguments)
            assert connected(host, hello) == b"hello\n"
            with pytest.raises(UnfitError, match="no login"):
                connected(replace(host, ssh_args=(*arguments, "-o", "IdentitiesOnly=yes")), hello)
        finally:
            agent.terminate()


def test_the_configuration_of_openssh_applies_with_jump_hosts_and_included_files(nodes: Lab, tmp_path: Path) -> None:
    behind, gate = nodes.nodes["n2"], nodes.nodes["n1"]
    common = (
        f"User {os.environ.get('USER') or 'root'}\n IdentityFile {nodes.key}\n UserKnownHostsFile {nodes.known_hosts}\n"
    )
    (tmp_path / "more").write_text(f"Host gate\n Hostname {gate.address}\n Port {gate.port}\n {common}")
    config = tmp_path / "config"
    config.write_text(
        f"Include {tmp_path}/more\n"
        f"Host node\n Hostname {behind.address}\n Port {behind.port}\n ProxyJump gate\n {common}"
    )

    before = gate.log.count("Accepted publickey")
    _, addresses, _ = connected(with_config(nodes.host("n2"), config), lambda c: run_command(c, "echo $SSH_CONNECTION"))
    assert addresses.split()[2:] == [behind.address.encode(), str(behind.port).encode()]
    assert gate.log.count("Accepted publickey") == before + 1
    deadline = time.monotonic() + TIMEOUT_S
    while len(gate.processes()) > 1:
        assert time.monotonic() < deadline, "a connection to the jump host was left open"
        time.sleep(0.02)


def test_an_unknown_jump_host_is_refused_too(nodes: Lab, tmp_path: Path) -> None:
    gate, behind = nodes.nodes["n1"], nodes.nodes["n2"]
    config = tmp_path / "config"
    config.write_text(
        f"Host gate\n Hostname {gate.address}\n Port {gate.port}\n UserKnownHostsFile {tmp_path}/none\n"
        f"Host node\n Hostname {behind.address}\n Port {behind.port}\n ProxyJump gate\n"
    )
    with pytest.raises(UnfitError, match=rf"the host key of \[{gate.address}\]:{gate.port} is not known"):
        connected(with_config(nodes.host("n2"), config), hello)


def test_a_wrong_argument_in_the_inventory_is_the_users_error(nodes: Lab) -> None:
    with pytest.raises(InputError, match=r"node n1: ssh -G .*portt"):
        connected(replace(nodes.host("n1"), ssh_args=("-o", "portt=1")), hello)


def test_a_connection_that_broke_is_opened_again(nodes: Lab) -> None:
    async def use(connection: Connection) -> bytes:
        await hello(connection)
        _, *sessions = nodes.nodes["n1"].processes()
        for session in sessions:
            session.send_signal(signal.SIGKILL)
        while True:
            with suppress(RunError):
                return await hello(connection)

    assert connected(nodes.host("n1"), use) == b"hello\n"


def test_a_host_that_rejects_connections_is_retried_and_then_given_up(
    nodes: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.01)
    with socket.create_server(("127.0.0.2", 0)) as server:
        server.settimeout(TIMEOUT_S)
        host = replace(nodes.host("n1"), ssh_port=server.getsockname()[1])
        rejected = 0

        async def open_connection(connection: Connection) -> None:
            await connection.open()

        def reject() -> None:
            nonlocal rejected
            for _ in range(module.TRIES):
                client, _ = server.accept()
                client.close()
                rejected += 1

        with ThreadPoolExecutor(1) as thread:
            rejecting = thread.submit(reject)
            with pytest.raises(RunError, match=r"node n1: ssh .* cannot be reached"):
                connected(host, open_connection)
            rejecting.result(TIMEOUT_S)
        assert rejected == module.TRIES


@pytest.fixture
def millrace(nodes: Lab) -> Callable[..., "subprocess.CompletedProcess[bytes]"]:
    def run(*arguments: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        program = [
            sys.executable,
            "-P",
            "-c",
            "from millrace.__main__ import main; main()",
            "exec",
            str(nodes.inventory),
        ]
        return subprocess.run([*program, *arguments], input=stdin, capture_output=True, check=False, timeout=TIMEOUT_S)

    return run


def test_exec_passes_on_arguments_input_output_and_status(millrace: Callable[..., Any]) -> None:
    script = (
        "import sys; sys.stderr.write(repr(sys.argv[1:])); "
        "sys.stdout.buffer.write(sys.stdin.buffer.read()); sys.exit(9)"
    )
    arguments = ["", "a  b", "$HOME", "'\"", "--help", "é\n*", "-x;ls"]
    stdin = bytes(range(256)) * 1000
    done = millrace("n2", "--", sys.executable, "-c", script, *arguments, stdin=stdin)
    assert (done.returncode, done.stderr.decode()) == (9, repr(arguments))
    assert done.stdout == stdin


def test_exec_reports_signals_and_missing_programs_as_a_shell_does(
    millrace: Callable[..., Any],
) -> None:
    assert millrace("n1", "--", "sh", "-c", "kill -9 $$").returncode == 128 + signal.SIGKILL
    assert millrace("n1", "--", "no-such-program").returncode == 127


def test_exec_names_the_nearest_node(millrace: Callable[..., Any]) -> None:
    done = millrace("n11", "--", "true")
    assert done.returncode == 2
    assert b"has no node 'n11'; did you mean 'n1'?" in done.stderr


def test_nodes_without_a_java_that_engines_can_use_are_refused_with_the_output_of_java(
    nodes: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for program, release in ((old, "11.0.2"), (new, "17.0.1")):
        program.write_text(f"#!/bin/sh\necho Picked up something >&2\necho 'openjdk version \"{release}\"' >&2\n")
        program.chmod(0o755)
    monkeypatch.setattr(backend, "JAVA", str(new))
    connected(nodes.host("n1"), backend._check_java)
    for java, output in ((str(old), "Picked up something"), ("no-such-java", ".*no-such-java.*not found")):
        monkeypatch.setattr(backend, "JAVA", java)
        message = f"node n1: engines need Java 17 or later, java -version says: {output}; .* apt install openjdk-17-jre"
        with pytest.raises(UnfitError, match=message):
            connected(nodes.host("n1"), backend._check_java)
