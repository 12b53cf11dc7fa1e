"""Engines on machines, which are simulated by folders of this host: files sent and collected, ends of processes."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from agents.protocol import Slot
from controller.coordinator.interfaces import Offset
from controller.nodes.transport import LoopbackTransport
from engines import node_program
from engines.child_processes import EngineProcess
from engines.installation import Engine
from engines.job import ANSWERS, CONTROL, GO, LOGS, MASTER, REPORTS, EngineJob
from engines.machines import Machines
from engines.node_program import NodeProgram
from engines.node_protocol import Ended, Prepare, Report, Start
from inventory.errors import RunError
from workloads.topology import Component, Input, Topology

pytestmark = pytest.mark.loopback

TOPOLOGY = Topology(
    "t",
    (
        Component("source", "spout", 1, outputs={"default": {"x": "int"}}),
        Component("sink", "bolt", 1, inputs=(Input("source"),)),
    ),
)
PLACES = {"source[0]": Slot("n1", 0), "sink[0]": Slot("n2", 0)}
CLOCK_LAG_S = 3600.0
"""Lag of the clock of n2 behind that of this host."""

EXECUTORS = """\
import os, pathlib, sys, time
node, answer = sys.argv[1:]
print("begun", flush=True)
report = open(f"reports/{node}-0-{os.getpid()}.tsv", "a")
print("open\\t1\\tx[0]", file=report, flush=True)
while not pathlib.Path("control/finish").exists():
    time.sleep(0.02)
for name in (answer, "9-9.tsv"):
    pathlib.Path("answers", name).write_text(f"{node}\\t1\\n")
print(f"finished\\t{time.monotonic_ns()}", file=report, flush=True)
time.sleep(600)
"""
ORPHANS = """\
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={}, start_new_session=True)
print("begun", flush=True)
time.sleep(600)
"""


@pytest.fixture
def job(tmp_path: Path) -> EngineJob:
    folder = tmp_path / "job"
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "any.jar").write_text("a jar")
    folder.mkdir()
    work_folders = {node: tmp_path / f"work-{node}" for node in ("n1", "n2")}
    for work in work_folders.values():
        work.mkdir()
    transports = {
        node: LoopbackTransport(tmp_path / node, ("env", f"MILLRACE_WORK={work}"))
        for node, work in work_folders.items()
    }
    addresses = {"n1": "127.0.0.2", "n2": "127.0.0.3"}
    engine_job = EngineJob("run", "replay", TOPOLOGY, PLACES, addresses, folder, machines=transports, sensors=("cpu",))
    engine_job.write_properties()
    return engine_job


def machines(job: EngineJob, ports: Mapping[str, int] | None = None) -> Machines:
    return Machines(job, Engine("any", job.folder.parent / "jars"), ports or {})


def process(job: EngineJob, node: str, code: str, *arguments: str) -> EngineProcess:
    log = job.folder_on(node) / LOGS / node / "daemon.log"
    return EngineProcess(f"the daemon of {node}", (sys.executable, "-c", code, *arguments), str(log), node=node)


async def until(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def processes_in(folder: Path) -> list[int]:
    """Return the ids of processes whose working directory is a folder or below it."""
    found = []
    for each in psutil.process_iter():
        try:
            if Path(each.cwd()).is_relative_to(folder):
                found.append(each.pid)
        except psutil.Error:
            continue
    return found


def test_commands_have_the_times_of_nodes_and_reports_answers_logs_and_traces_are_collected(
    job: EngineJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = NodeProgram.offset.fget  # type: ignore[attr-defined]
    lagging = Offset(-round(CLOCK_LAG_S * 1e9), 1000)
    monkeypatch.setattr(NodeProgram, "offset", property(lambda self: lagging if self._node == "n2" else measured(self)))
    (job.folder / "conf").mkdir()
    (job.folder / "conf" / "any.yaml").write_text("a: 1")

    async def run() -> tuple[list[int], Machines]:
        async with machines(job) as started:
            processes = [process(job, node, EXECUTORS, node, f"{at}-0.tsv") for at, node in enumerate(("n1", "n2"))]
            await started.start(processes, {"n1": "the daemon of n1"})
            await until(lambda: len(list((job.folder / REPORTS).glob("*.tsv"))) == 2)
            times = [time.monotonic_ns() + at * 10**9 for at in (1, 2, 3, 3)]
            await started.go(times)
            await started.finish()
            reports = job.folder / REPORTS
            await until(lambda: all("finished" in path.read_text() for path in reports.glob("*.tsv")))
            await started.collect_answers(PLACES)
            assert not started.failed.done()
            with pytest.raises(RunError, match="after the start of its sources: a slow connection"):
                await started.go([time.monotonic_ns()] * 4)
        return times, started

    times, ended = asyncio.run(run())
    remote = {node: Path(transport.folder) for node, transport in job.machines.items()}
    for node, folder in remote.items():
        assert (folder / "conf" / "any.yaml").read_text() == "a: 1"
        assert (folder / "lib-worker" / "any.jar").read_text() == "a jar"
        assert (job.folder / LOGS / f"{node}-daemon.log").read_text() == "begun\n"
        offset_ns = lagging.offset_ns if node == "n2" else 0
        *_, last = map(int, (folder / CONTROL / GO).read_text().split())
        assert abs(last - offset_ns - times[0]) < 30e9
    assert (remote["n1"] / CONTROL / GO).read_text() != (remote["n2"] / CONTROL / GO).read_text()
    assert {path.name: path.read_text() for path in (job.folder / ANSWERS).iterdir()} == {
        "0-0.tsv": "n1\t1\n",
        "1-0.tsv": "n2\t1\n",
    }
    assert [path for folder in ended.traces for path in folder.glob("n[12]*.trace")]
    assert ended.clocks is not None
    assert ended.clocks.current("n2").offset_ns == lagging.offset_ns
    assert [path.name for path in (job.folder.parent / "work-n1" / "engines").iterdir()] == ["jars"]
    assert not processes_in(job.folder.parent)


def test_a_process_that_ends_is_named_and_its_orphans_are_ended(job: EngineJob) -> None:
    async def run() -> tuple[str, list[int]]:
        async with machines(job) as started:
            await started.start([process(job, "n1", ORPHANS)], {})
            log = job.folder_on("n1") / LOGS / "n1" / "daemon.log"
            await until(lambda: log.exists() and log.read_text())
            (daemon,) = (pid for pid in processes_in(job.folder_on("n1")) if ORPHANS in psutil.Process(pid).cmdline())
            orphans = [child.pid for child in psutil.Process(daemon).children()]
            assert len(orphans) == 1
            os.kill(daemon, signal.SIGKILL)
            reason = await asyncio.wait_for(asyncio.shield(started.failed), 30)
            assert (job.folder / LOGS / "n1-daemon.log").read_text() == "begun\n"
            assert psutil.pid_exists(orphans[0])
        return reason, orphans

    reason, orphans = asyncio.run(run())
    assert reason == "the daemon of n1 ended by signal 9"
    assert not any(map(psutil.pid_exists, orphans))


def test_a_process_that_ends_is_named_also_where_its_log_is_gone(job: EngineJob) -> None:
    async def run() -> str:
        async with machines(job) as started:
            code = "import os, sys; os.unlink(sys.argv[1]); sys.exit(3)"
            log = job.folder_on("n1") / LOGS / "n1" / "daemon.log"
            await started.start([process(job, "n1", code, str(log))], {})
            return await asyncio.wait_for(asyncio.shield(started.failed), 30)

    assert asyncio.run(run()) == "the daemon of n1 ended with status 3"


def test_no_process_is_left_on_a_node_when_the_controller_is_gone(job: EngineJob) -> None:
    folder = job.folder_on("n1")
    command = [sys.executable, "-P", "-m", "engines.node"]
    pipes: Mapping[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    environment = {**os.environ, "MILLRACE_WORK": str(folder)}
    with subprocess.Popen(command, cwd=folder, env=environment, **pipes) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        start = Start("run", "127.0.0.2", [process(job, "n1", ORPHANS)], [], "")
        for line in (Prepare("n1", 3, "any"), start):
            program.stdin.write(msgspec.json.encode(line) + b"\n")
        program.stdin.flush()
        while b'"started"' not in program.stdout.readline():
            pass
        deadline = time.monotonic() + 30
        while len(children := psutil.Process(program.pid).children(recursive=True)) < 2:
            assert time.monotonic() < deadline
        program.stdin.close()
        assert program.wait(30) == 0
    assert not any(child.is_running() for child in children)


def test_a_killed_program_fails_the_run(job: EngineJob) -> None:
    async def run() -> str:
        async with machines(job) as started:
            (program,) = processes_in(job.folder_on("n2"))
            os.kill(program, signal.SIGKILL)
            return await asyncio.wait_for(asyncio.shield(started.failed), 30)

    assert asyncio.run(run()) == "the program on node n2 ended"


def test_a_node_that_has_been_silent_fails_the_run(job: EngineJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_program, "SILENCE_S", 3.0)
    monkeypatch.setattr(node_program, "ANSWER_S", 1.0)
    monkeypatch.setattr(node_program, "BYE_S", 0.2)

    async def run() -> str:
        async with machines(job) as started:
            (program,) = processes_in(job.folder_on("n1"))
            os.kill(program, signal.SIGSTOP)
            return await asyncio.wait_for(asyncio.shield(started.failed), 30)

    assert asyncio.run(run()).startswith("node n1 has been silent for")
    assert not processes_in(job.folder.parent)


def test_nodes_on_one_host_get_ports_of_their_own(job: EngineJob) -> None:
    async def run() -> list[int]:
        counts = {MASTER: 2, "n1": 3, "n2": 4}
        async with machines(job, counts) as started:
            firsts = started.first_ports
            return [port for node, count in counts.items() for port in range(firsts[node], firsts[node] + count)]

    ports = asyncio.run(run())
    assert len(set(ports)) == 9
    assert min(ports) >= 20_000


HOSTILE: Sequence[tuple[Any, str]] = [
    (Report("../n1-0-1.tsv", "x"), "is no file name"),
    (Report("n2-0-1.tsv", "x"), "is no name of a report"),
    (Ended("../../x", 1, "x"), "was not started there"),
]


@pytest.mark.parametrize(("answer", "message"), HOSTILE)
def test_names_that_a_node_may_not_use_are_refused(job: EngineJob, answer: Any, message: str) -> None:
    program = NodeProgram("n1", job.machines["n1"], job, print)
    with pytest.raises(RunError, match=message):
        program._take(answer, 0)
