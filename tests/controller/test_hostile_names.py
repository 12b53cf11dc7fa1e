"""No name sent by a node, in any kind of report, leads outside the folder for its files."""

import asyncio
import json
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet
import pytest
from bare_environment import bare_environment
from hostile_names import NAMES, SandboxFolder
from hypothesis import HealthCheck, given, settings
from simulated_runs import PLACES, spec_of
from sshd import lab

from agents.protocol import Drained, Profile, Stored
from agents.worker.process.answer_files import write_answer_rows
from controller.coordinator.checkpoint_store import CheckpointStore
from controller.coordinator.epoch_workers import EpochWorkers
from controller.coordinator.reports import ReportedWork
from controller.host.condition import Condition
from controller.nodes.transport import (
    FolderReplicas,
    LoopbackTransport,
    collect_answer,
    collect_logs,
    collect_profiles,
    collect_traces,
)
from controller.ssh.backend import SshTransport
from controller.ssh.connection import Connection
from controller.ssh.files import RemoteFiles
from controller.ssh.node_lease import NodeLease
from controller.ssh.settings import ssh_settings
from inventory.errors import MillraceError, RunError
from workloads.columns import Columns

FEW, MANY = 40, 10_000
TABLES = {"counts": {"word": "str", "count": "int"}}
EXECUTOR = "sink[0]"
NODE, OTHER = "n2", "n1"
"""Node of the executor, and a node that gets its state in a recovery."""

HOSTILE_INPUT = settings(deadline=None, suppress_health_check=list(HealthCheck))


class Loopback:
    """Two nodes on this host, one of them hostile, and the controller's folders."""

    def __init__(self, folder: Path) -> None:
        self.sandbox = SandboxFolder(folder)
        inside = self.sandbox.inside
        self.transports = {node: LoopbackTransport(inside / "nodes" / node) for node in (NODE, OTHER)}
        self.replicas = FolderReplicas(inside / "controller" / "copies", self.transports)
        self.answer = inside / "controller" / "answer"
        self.runner = asyncio.Runner()
        self.reset_files()

    def reset_files(self) -> None:
        """Restore the node's files, and links that lead outside."""
        nodes = self.sandbox.inside / "nodes"
        links = {nodes / OTHER / "link": self.sandbox.outside}
        for name in ("r/answer", "r/checkpoints/1", "r/traces", "r/profiles"):
            folder = nodes / NODE / name
            links |= {folder / "link": self.sandbox.outside, folder / "canary": self.sandbox.outside / "canary"}
        for link, target in links.items():
            if not link.is_symlink():
                shutil.rmtree(link, ignore_errors=True)
                link.unlink(missing_ok=True)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(target)
        (nodes / NODE / "r/checkpoints/1" / EXECUTOR).write_bytes(b"state")
        write_answer_rows(nodes / NODE / "r/answer/x.arrow", EXECUTOR, TABLES["counts"], [("a", 1)])

    def epoch_workers(self) -> EpochWorkers:
        """Return workers without reports, at barrier 1."""

        async def nothing(*_: object) -> None:
            """Do nothing."""

        environment = bare_environment(
            nodes=tuple(self.transports),
            send=nothing,
            restart=nothing,
            supply=nothing,
            place=nothing,  # type: ignore[arg-type]
            offset=lambda _: pytest.fail("no clocks here"),
            replicas=self.replicas,
            note=lambda *_: None,
            tables=TABLES.keys(),
        )
        workers = EpochWorkers(spec_of(PLACES), environment, Condition(), ReportedWork(), lambda *_: None)
        workers.forget_barrier(1, store=True)
        return workers

    async def store(self, executor: str, file: str, table: str, part: str, nbytes: int = 5) -> bool:
        """Store a checkpoint with this report and recover from it elsewhere; return whether it was accepted."""
        workers, store, answers = self.epoch_workers(), CheckpointStore(self.replicas), {table: (part,)}
        report = Stored(epoch=1, slot=0, barrier=1, executor=executor, file=file, nbytes=nbytes, answers=answers)
        try:
            workers.handle_report(NODE, report)
            await store.store(1, workers.snapshots.stored, {})
            await store.distribute({executor: PLACES["src[0]"]}, {})
            collect_answer([(p.table, self.replicas.path(p.name)) for p in store.parts], self.answer, TABLES)
        except RunError:
            return False
        return True

    async def drain(self, table: str, part: str) -> bool:
        """End a run with this report; return whether it was accepted."""
        workers = self.epoch_workers()
        try:
            workers.handle_report(NODE, Drained(epoch=1, slot=0, answers={table: (part,)}))
            parts = await CheckpointStore(self.replicas).copy_rest(1, workers.drained)
            collect_answer([(p.table, self.replicas.path(p.name)) for p in parts], self.answer, TABLES)
        except RunError:
            return False
        return True

    async def attack(self, name: str) -> None:
        """Use the name for everything that a node can name, one by one and all together."""
        file, part = f"r/checkpoints/1/{EXECUTOR}", "r/answer/x.arrow"
        for given_names in (
            (name, file, "counts", part),
            (EXECUTOR, name, "counts", part),
            (EXECUTOR, file, name, part),
            (EXECUTOR, file, "counts", name),
            (EXECUTOR, file, "counts", f"r/answer/{name}"),
            (name,) * 4,
        ):
            await self.store(*given_names)
            await self.drain(*given_names[2:])
        # Functions behind the checks of reports must not lead outside either.
        controller = self.sandbox.inside / "controller"
        for node, transport in self.transports.items():
            for step in (
                self.replicas.replicate(node, name, "checkpoints/1/x"),
                self.replicas.replicate(NODE, file, name),
                self.replicas.restore(f"checkpoints/1/{EXECUTOR}", node, name),
                transport.fetch(name, "*"),
                collect_profiles({node: transport}, "r", {node: [Profile(0, name)]}, controller / "profiles"),
            ):
                with suppress(RunError, OSError):
                    await step


@pytest.fixture
def loopback(tmp_path: Path) -> Iterator[Loopback]:
    nodes = Loopback(tmp_path / "sandbox")
    with nodes.runner:
        yield nodes


def test_valid_names_are_accepted(loopback: Loopback) -> None:
    async def live() -> None:
        assert await loopback.store(EXECUTOR, f"r/checkpoints/1/{EXECUTOR}", "counts", "r/answer/x.arrow")
        assert await loopback.drain("counts", "r/answer/x.arrow")
        assert (loopback.sandbox.inside / "nodes" / OTHER / f"r/checkpoints/1/{EXECUTOR}").read_bytes() == b"state"

    asyncio.run(live())
    found = pyarrow.parquet.read_table(loopback.answer / "counts")
    assert found.to_pylist() == [{"word": "a", "count": 1}]


@pytest.mark.parametrize(
    ("executor", "file", "table", "part", "complaint"),
    [
        ("nobody[0]", "{here}", "counts", "r/answer/x", r"state for 'nobody\[0\]', which does not run there"),
        ("src[0]", "{here}", "counts", "r/answer/x", r"state for 'src\[0\]', which does not run there"),
        (EXECUTOR, "/etc/passwd", "counts", "r/answer/x", r"in '/etc/passwd'; expected: 'r/checkpoints/1/sink\[0\]'"),
        (
            EXECUTOR,
            "{here}",
            "count",
            "r/answer/x",
            "'count', which is no table of the topology; did you",
        ),
        (EXECUTOR, "{here}", "counts", "r/traces/x", "in 'r/traces/x'; expected: a file in 'r/answer'"),
        (EXECUTOR, "{here}", "counts", "r/answer/..", "'..' is no file name"),
    ],
)
def test_a_wrong_name_is_refused_with_what_was_expected(
    loopback: Loopback, executor: str, file: str, table: str, part: str, complaint: str
) -> None:
    here = f"r/checkpoints/1/{EXECUTOR}"
    report = Stored(
        epoch=1,
        slot=0,
        barrier=1,
        executor=executor,
        file=file.format(here=here),
        nbytes=1,
        answers={table: (part,)},
    )
    with pytest.raises(RunError, match=complaint):
        loopback.epoch_workers().handle_report(NODE, report)


def test_links_and_folders_are_not_collected(loopback: Loopback, tmp_path: Path) -> None:
    secret = loopback.sandbox.outside / "secret.log"
    secret.write_text("secret")
    logs = loopback.sandbox.inside / "nodes" / NODE / "logs"
    logs.mkdir()
    (logs / "linked.log").symlink_to(secret)
    (logs / "folder.log").mkdir()
    (logs / "agent.log").write_text("plain")
    traces = loopback.sandbox.inside / "nodes" / NODE / "r/traces"
    (traces / "n2-0-0.trace").symlink_to("/dev/zero")

    async def live() -> None:
        await collect_logs({NODE: loopback.transports[NODE]}, "r", tmp_path / "logs")
        await collect_traces({NODE: loopback.transports[NODE]}, "r", tmp_path / "ours", tmp_path / "traces")

    asyncio.run(asyncio.wait_for(live(), 60))
    assert [path.name for path in (tmp_path / "logs" / NODE).iterdir()] == ["agent.log"]


def test_an_answer_of_other_columns_or_none_at_all_is_refused(loopback: Loopback) -> None:
    folder = loopback.sandbox.inside / "nodes" / NODE / "r/answer"
    write_answer_rows(folder / "wrong.arrow", EXECUTOR, {"word": "str", "count": "str"}, [("a", "1")])
    (folder / "torn.arrow").write_bytes((folder / "x.arrow").read_bytes()[:-50])
    for name, complaint in (("wrong", "has columns"), ("torn", "cannot be read")):
        with pytest.raises(RunError, match=complaint):
            collect_answer([("counts", folder / f"{name}.arrow")], loopback.answer, TABLES)


def test_rows_that_point_outside_their_buffers_are_refused_before_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    write_answer_rows(path, EXECUTOR, TABLES["counts"], Columns.of_rows(TABLES["counts"], [("a" * 12345, 1)]))
    length, beyond = (12345).to_bytes(4, "little"), (10**9).to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace(length, beyond))
    with pytest.raises(RunError, match="cannot be read"):
        collect_answer([("counts", path)], tmp_path / "answer", TABLES)


def attack_loopback(loopback: Loopback, drawn: str) -> None:
    loopback.reset_files()
    loopback.runner.run(loopback.attack(loopback.sandbox.name(drawn)))
    loopback.sandbox.check()


@settings(HOSTILE_INPUT, max_examples=FEW)
@given(drawn=NAMES)
def test_no_name_in_a_report_leads_outside(loopback: Loopback, drawn: str) -> None:
    attack_loopback(loopback, drawn)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(HOSTILE_INPUT, max_examples=MANY)
@given(drawn=NAMES)
def test_none_of_ten_thousand_names_in_reports_leads_outside(loopback: Loopback, drawn: str) -> None:
    attack_loopback(loopback, drawn)


LEASE_DAEMON = """\
import hashlib, json, os, sys
from importlib.metadata import version
here = os.path.dirname(__file__)
_, work, campaign, _ = sys.argv[-4:]
folder = os.path.join(work, campaign, "run")
os.makedirs(folder, exist_ok=True)
print(json.dumps({"version": version("millrace"), "free_bytes": 1}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    answer = {}
    if asked["do"] == "list" and os.path.exists(os.path.join(here, "answer")):
        os.write(1, open(os.path.join(here, "answer"), "rb").read())
        continue
    if asked["do"] == "list":
        name, content = asked["pattern"], b"of a node"
        if name == os.path.basename(name) and "\\0" not in name and len(name.encode()) < 256:
            with open(os.path.join(folder, name), "wb") as file:
                file.write(content)
        answer = {"files": [[name, len(content), hashlib.sha256(content).hexdigest()]]}
    print(json.dumps(answer), flush=True)
    if asked["do"] == "leave":
        break
"""
"""A lease daemon that lists one file of the requested name, or replies with the content of the file `answer`."""


class Ssh:
    """A hostile node behind a real sshd, and the controller's lease of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._runner = folder, asyncio.Runner()
        self._lab = lab(folder / "lab", ["127.0.0.2"])

    def __enter__(self) -> "Ssh":
        (self.folder / "lab").mkdir(parents=True)
        nodes = self._lab.__enter__()
        daemon = nodes.folder / "lease_daemon.py"
        daemon.write_text(LEASE_DAEMON)
        (nodes.nodes["n1"].home / "venv/bin/python").write_text(f'#!/bin/sh\nexec {sys.executable} {daemon} "$@"\n')
        self._threads = ThreadPoolExecutor()
        self._connection = Connection(nodes.host("n1"), self._threads, ssh_settings(nodes.host("n1")))
        self._lease = NodeLease(self._connection, "campaign-" + "a" * 32, "owner")
        return self

    def __exit__(self, *fault: object) -> None:
        async def close() -> None:
            await self._lease.close()
            await self._connection.close()

        self._runner.run(close())
        self._runner.close()
        self._threads.shutdown()
        self._lab.__exit__(None, None, None)

    def attack(self, drawn: str) -> None:
        """Fetch a file to which the node gives this name."""
        sandbox = SandboxFolder(self.folder / "made" / "sandbox")
        transport = SshTransport(self._lease, RemoteFiles(self._lease), "run", sandbox.inside)

        async def fetch() -> None:
            with suppress(MillraceError):
                await asyncio.wait_for(transport.fetch(".", sandbox.name(drawn)), 60)

        self._runner.run(fetch())
        sandbox.check()
        self.fetched = [path.read_bytes() for path in sandbox.inside.iterdir() if path.is_file()]
        shutil.rmtree(sandbox.inside.parent)


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ssh]:
    with Ssh(tmp_path_factory.mktemp("ssh")) as node:
        yield node


@pytest.mark.sshd
@settings(HOSTILE_INPUT, max_examples=FEW)
@given(drawn=NAMES)
def test_no_name_of_a_file_behind_ssh_leads_outside(ssh: Ssh, drawn: str) -> None:
    ssh.attack(drawn)


@pytest.mark.sshd
@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(HOSTILE_INPUT, max_examples=MANY)
@given(drawn=NAMES)
def test_none_of_ten_thousand_names_behind_ssh_leads_outside(ssh: Ssh, drawn: str) -> None:
    ssh.attack(drawn)


@pytest.mark.sshd
def test_a_valid_name_over_ssh_is_fetched_and_a_hostile_one_is_reported_with_its_node(ssh: Ssh) -> None:
    ssh.attack("plain")
    assert ssh.fetched == [b"of a node"]

    async def fetch() -> None:
        await RemoteFiles(ssh._lease).fetch("run", "../x", ssh.folder / "fetched")

    with pytest.raises(RunError, match=r"node n1: a file in run: '../x' is no file name: printable, no '/', no"):
        ssh._runner.run(fetch())


INVALID_REPLIES = {
    "nested without an end": '{"x": ' + "[" * 100_000,
    "no files": "{}",
    "files that are numbers": '{"files": 1}',
    "a name that is none": '{"files": [[1, 1, "x"]]}',
    "a size of forty digits": json.dumps({"files": [["x", 10**40, "0" * 64]]}),
    "a size that is negative": json.dumps({"files": [["x", -1, "0" * 64]]}),
    "more than there is room for": json.dumps({"files": [["x", 2**52, "0" * 64]]}),
    "no text": '"\udcff"',
}


@pytest.mark.sshd
@pytest.mark.parametrize("answer", INVALID_REPLIES.values(), ids=INVALID_REPLIES.keys())
def test_an_invalid_reply_of_a_lease_daemon_is_reported_with_its_node(ssh: Ssh, tmp_path: Path, answer: str) -> None:
    reply_file = ssh.folder / "lab/answer"
    reply_file.write_bytes(answer.encode(errors="surrogateescape") + b"\n")

    async def fetch() -> None:
        await RemoteFiles(ssh._lease).fetch("run", "*", tmp_path / "fetched")

    try:
        with pytest.raises(RunError, match="node n1: "):
            ssh._runner.run(asyncio.wait_for(fetch(), 60))
    finally:
        reply_file.unlink()
