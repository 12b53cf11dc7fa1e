"""File transfer to and from a node behind a real sshd, and the lease daemon on the node."""

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest
from sshd import Lab, Sshd, lab

from controller.host.addresses import with_addresses
from controller.host.ownership import CleanupLog
from controller.host.process_identity import identify
from controller.ssh.backend import SshBackend, SshTransport
from controller.ssh.connection import Connection
from controller.ssh.files import CACHE, PARTIAL, RemoteFiles
from controller.ssh.node_lease import NodeLease
from controller.ssh.node_lease_daemon import WORK
from controller.ssh.settings import ssh_settings
from inventory.cluster import cluster_from_document
from inventory.errors import RunError, UnfitError

pytestmark = pytest.mark.sshd

T = TypeVar("T")
TIMEOUT_S = 100.0
OURS, OTHERS = (f"campaign-{letter * 32}" for letter in "ab")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab"), ["127.0.0.2"]) as running_lab:
        yield running_lab


@pytest.fixture
def node(nodes: Lab) -> Sshd:
    return nodes.nodes["n1"]


def with_lease(nodes: Lab, use: Callable[[NodeLease], Awaitable[T]], campaign: str = OURS) -> T:
    """Return the result of `use`, called while a campaign holds the lease of the node."""

    async def live() -> T:
        with ThreadPoolExecutor() as threads:
            connection = Connection(nodes.host("n1"), threads, ssh_settings(nodes.host("n1")))
            lease = NodeLease(connection, campaign, f"owner of {campaign}")
            try:
                return await asyncio.wait_for(use(lease), TIMEOUT_S)
            finally:
                await lease.close()
                await connection.close()

    return asyncio.run(live())


def written(path: Path, nbytes: int) -> Path:
    path.write_bytes(os.urandom(nbytes))
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_is_copied_to_a_node_and_back(nodes: Lab, node: Sshd, tmp_path: Path) -> None:
    source = written(tmp_path / "source", 3_000_001)

    async def move(lease: NodeLease) -> Path:
        files = RemoteFiles(lease)
        await files.put(source, "run/inputs/a b", lambda *so_far: progress.append(so_far))
        await files.put(source, "run/inputs/again", lambda *_: pytest.fail("it is there"))
        await files.replicate("run/inputs/a b", tmp_path / "kept" / "back")
        assert (node.work / OURS / "run/inputs/a b").samefile(node.work / OURS / "run/inputs/again")
        return await SshTransport(lease, files, "run", tmp_path / "stage").fetch("inputs", "a*")

    progress: list[tuple[int, ...]] = []
    fetched = with_lease(nodes, move)
    assert progress == [(at, 3_000_001) for at in (1048576, 2097152, 3_000_001)]
    assert sorted(path.name for path in fetched.iterdir()) == ["a b", "again"]
    assert {sha256(path) for path in [tmp_path / "kept/back", *fetched.iterdir()]} == {sha256(source)}
    assert not (node.work / OURS).exists()


def test_an_empty_file_and_an_absent_folder_are_no_special_case(nodes: Lab, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()

    async def move(lease: NodeLease) -> None:
        files = RemoteFiles(lease)
        await files.put(tmp_path / "empty", "x/empty")
        await files.fetch("x", "*", tmp_path / "back")
        await files.fetch("nowhere", "*", tmp_path / "back")
        with pytest.raises(RunError, match="node n1: there is no file x/gone"):
            await files.replicate("x/gone", tmp_path / "gone")

    with_lease(nodes, move)
    assert [path.name for path in (tmp_path / "back").iterdir()] == ["empty"]


@pytest.mark.parametrize("right", [True, False], ids=["what is there is right", "what is there is wrong"])
def test_an_interrupted_transfer_resumes_and_wrong_data_are_sent_again(
    nodes: Lab, node: Sshd, tmp_path: Path, right: bool
) -> None:
    source = written(tmp_path / "source", 2_500_000)
    half = source.read_bytes()[:1_000_000] if right else bytes(1_000_000)

    async def move(lease: NodeLease) -> None:
        await lease.open()
        cache = node.work / OURS / CACHE
        cache.mkdir()
        (cache / (sha256(source) + PARTIAL)).write_bytes(half)
        (tmp_path / f"back{PARTIAL}").write_bytes(half)
        files = RemoteFiles(lease)
        await files.put(source, "there")
        await files.replicate("there", tmp_path / "back")

    with_lease(nodes, move)
    assert sha256(tmp_path / "back") == sha256(source)
    assert not (tmp_path / f"back{PARTIAL}").exists()


def test_a_connection_that_breaks_in_the_middle_of_a_file_does_not_harm_it(
    nodes: Lab, node: Sshd, tmp_path: Path
) -> None:
    source = written(tmp_path / "source", 60_000_000)
    partial = node.work / OURS / CACHE / (sha256(source) + PARTIAL)
    broken_at = 0

    async def move(lease: NodeLease) -> None:
        nonlocal broken_at
        await lease.open()
        files = RemoteFiles(lease)
        moving = asyncio.create_task(files.put(source, "there"))
        while not (partial.exists() and partial.stat().st_size > 1_000_000) and not moving.done():
            await asyncio.sleep(0.005)
        _, *sessions = node.processes()
        for session in sessions:
            session.send_signal(signal.SIGKILL)
        broken_at = partial.stat().st_size
        await moving
        await files.replicate("there", tmp_path / "back")

    with_lease(nodes, move)
    assert 0 < broken_at < 60_000_000
    assert sha256(tmp_path / "back") == sha256(source)


def test_a_node_belongs_to_one_campaign_at_a_time(nodes: Lab) -> None:
    async def try_another(lease: NodeLease) -> None:
        await lease.open()
        await asyncio.to_thread(with_lease, nodes, lambda other: other.open(), OTHERS)

    with pytest.raises(UnfitError, match=f"node n1: it is in use by owner of {OURS}"):
        with_lease(nodes, try_another)
    with_lease(nodes, lambda lease: lease.open(), OTHERS)


def test_files_and_processes_of_a_dead_campaign_are_removed_and_no_others(nodes: Lab, node: Sshd) -> None:
    (node.work / OTHERS / "run").mkdir(parents=True)
    (node.work / "somebody's").mkdir()
    command = [sys.executable, "-c", "import time; print(flush=True); time.sleep(1000)"]
    with subprocess.Popen(command, env={WORK: str(node.work)}, stdout=subprocess.PIPE) as orphan:
        try:
            assert orphan.stdout is not None
            orphan.stdout.readline()
            with_lease(nodes, lambda lease: lease.open())
            assert orphan.wait(TIMEOUT_S) == -signal.SIGTERM
        finally:
            orphan.kill()
    assert not (node.work / OTHERS).exists()
    assert (node.work / "somebody's").exists()


def test_an_agent_that_ignores_the_end_of_its_input_is_ended_with_its_children(
    nodes: Lab, node: Sshd, tmp_path: Path
) -> None:
    (node.modules / "stubborn.py").write_text(
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'], start_new_session=True)\n"
        "print(os.getpid(), child.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )

    async def live(lease: NodeLease) -> None:
        transport = SshTransport(lease, RemoteFiles(lease), "run", tmp_path / "stage")
        program = await transport.start("stubborn")
        processes = [identify(int(pid)) for pid in (await program.read_line()).split()]
        program.kill()
        await program.wait()
        assert len(processes) == 2
        assert all(processes)
        assert not any(process.is_alive() for process in processes if process)

    with_lease(nodes, live)


def test_the_exit_status_of_a_remote_program_is_that_of_a_child(nodes: Lab, node: Sshd, tmp_path: Path) -> None:
    async def live(lease: NodeLease) -> int:
        transport = SshTransport(lease, RemoteFiles(lease), "run", tmp_path / "stage")
        program = await transport.start("agents")
        assert b'"hello"' in await program.read_line()
        agent = next(
            p for p in node.campaign_processes() if b"agents" in Path(f"/proc/{p}/cmdline").read_bytes().split(b"\0")
        )
        os.kill(agent, signal.SIGKILL)
        return await program.wait()

    assert with_lease(nodes, live) == -signal.SIGKILL


def test_a_controller_that_is_gone_leaves_no_process_and_a_free_node(nodes: Lab, node: Sshd, tmp_path: Path) -> None:
    async def live(lease: NodeLease) -> None:
        transport = SshTransport(lease, RemoteFiles(lease), "run", tmp_path / "stage")
        program = await transport.start("agents")
        await program.read_line()
        assert node.campaign_processes()
        await lease.connection.close()
        deadline = time.monotonic() + TIMEOUT_S
        while node.campaign_processes():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)

    with_lease(nodes, live)
    with_lease(nodes, lambda lease: lease.open(), OTHERS)
    assert not (node.work / OURS).exists()


def test_a_node_that_is_not_provisioned_is_refused(nodes: Lab, node: Sshd) -> None:
    python = node.home / "venv/bin/python"
    python.rename(python.with_name("away"))
    try:
        with pytest.raises(UnfitError, match=f"node n1: there is no {python}; provision the node first"):
            with_lease(nodes, lambda lease: lease.open())
    finally:
        python.with_name("away").rename(python)


def test_disk_space_on_every_node_is_checked_before_a_run(
    nodes: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    ssh_backend = SshBackend(with_addresses(cluster_from_document(nodes.hosts.cluster_document)), nodes.hosts, "me")
    ssh_backend.check()

    async def check_twice() -> None:
        async with ssh_backend:
            await ssh_backend.check_room(0)
            with pytest.raises(UnfitError, match=r"node n1: .*/work has .* MB free, and a run needs .* MB"):
                await ssh_backend.check_room(10**18)

    with CleanupLog(tmp_path) as state, ssh_backend.up(state):
        asyncio.run(check_twice())


@pytest.fixture
def small(node: Sshd) -> Iterator[None]:
    """Mount a file system of 1 MB as the node's work folder."""
    node.work.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", node.work], check=True)
    yield
    subprocess.run(["umount", "-l", node.work], check=True)


@pytest.mark.root
@pytest.mark.usefixtures("small")
@pytest.mark.long
def test_a_full_disk_on_a_node_is_reported_with_the_node_and_the_sizes(nodes: Lab, tmp_path: Path) -> None:
    source = written(tmp_path / "source", 3_000_000)
    with pytest.raises(UnfitError, match=r"node n1: .* has 1\.0 MB free, and source has 3\.0 MB"):
        with_lease(nodes, lambda lease: RemoteFiles(lease).put(source, "there"))
