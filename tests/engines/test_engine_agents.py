"""Engines under node agents, on machines that are folders of this host: files sent and collected, ends of processes."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from counter_replay import CounterReplay
from trees import meters

from agents.collected_traces import collect
from agents.power.reader import ROOT_VARIABLE
from agents.protocol import Equip, Equipped, Finish, Finished, IdleBaseline, Lines, Program, Slot, Write
from controller.coordinator.interfaces import Offset
from controller.nodes import agent_channel
from controller.nodes.agents import Agents, RunNode
from controller.nodes.local_nodes import LocalNode
from controller.nodes.transport import LoopbackTransport
from engines.engine_agents import EngineAgents
from engines.installation import Engine
from engines.job import ANSWERS, CONTROL, GO, LOGS, MASTER, REPORTS, EngineJob
from engines.sandbox import check_sandbox
from inventory.errors import RunError, UnfitError
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
    folder = tmp_path / "here" / "job"
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "any.jar").write_text("a jar")
    folder.mkdir(parents=True)
    work_folders = {node: tmp_path / f"work-{node}" for node in ("n1", "n2")}
    for work in work_folders.values():
        work.mkdir()
    addresses = {"n1": "127.0.0.2", "n2": "127.0.0.3"}
    nodes = {
        node: RunNode(addresses[node], LoopbackTransport(tmp_path / node, ("env", f"MILLRACE_WORK={work}")))
        for node, work in work_folders.items()
    }
    engine_job = EngineJob("run", "replay", TOPOLOGY, PLACES, addresses, folder, machines=nodes, sensors=("cpu",))
    engine_job.write_properties()
    return engine_job


def agents_of(job: EngineJob, ports: Mapping[str, int] | None = None) -> EngineAgents:
    return EngineAgents(job, Engine("any", next(job.folder.parents[1].glob("jars"))), ports or {})


def program(job: EngineJob, node: str, code: str, *arguments: str) -> tuple[str, Program]:
    log = job.folder_on(node) / LOGS / node / "daemon.log"
    return node, Program(f"the daemon of {node}", (sys.executable, "-c", code, *arguments), str(log))


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
    measured = EngineAgents.offset
    lagging = Offset(-round(CLOCK_LAG_S * 1e9), 1000)
    monkeypatch.setattr(EngineAgents, "offset", lambda self, node: lagging if node == "n2" else measured(self, node))
    (job.folder / "conf").mkdir()
    (job.folder / "conf" / "any.yaml").write_text("a: 1")

    async def run() -> tuple[list[int], EngineAgents]:
        async with agents_of(job) as started:
            processes = [program(job, node, EXECUTORS, node, f"{at}-0.tsv") for at, node in enumerate(("n1", "n2"))]
            await started.start(processes, {"n1": "the daemon of n1"})
            await until(lambda: len(list((job.folder / REPORTS).glob("*.tsv"))) == 2)
            times = [time.monotonic_ns() + at * 10**9 for at in (1, 2, 3, 3)]
            await started.go(times)
            await started.mark("measure_start")
            await started.finish()
            reports = job.folder / REPORTS
            await until(lambda: all("finished" in path.read_text() for path in reports.glob("*.tsv")))
            await started.collect_answers(PLACES)
            assert not started.failed.done()
            with pytest.raises(RunError, match="after the start of its sources: a slow connection"):
                await started.go([time.monotonic_ns()] * 4)
        return times, started

    times, ended = asyncio.run(run())
    remote = {node: job.folder_on(node) for node in job.machines}
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
    collect(ended.traces, job.folder / "tables")
    events = pq.read_table(job.folder / "tables" / "event.parquet").to_pylist()
    marks = [row["node"] for row in events if row["kind"] == "measure_start"]
    assert sorted(marks) == ["n1", "n2"]
    assert ended.clocks is not None
    assert ended.clocks.current("n2").offset_ns == lagging.offset_ns
    assert [path.name for path in (job.folder.parents[1] / "work-n1" / "engines").iterdir()] == ["jars"]
    assert not processes_in(job.folder.parents[1])


@pytest.fixture
def metered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give this host a package that draws 30 W."""
    zone = "intel-rapl:0"
    root = meters.plant(tmp_path / "root", meters.zone(zone, "package-0"))
    monkeypatch.setenv(ROOT_VARIABLE, str(root))
    counter = f"{meters.POWERCAP}/{zone}/energy_uj"
    with CounterReplay(root, {counter: (30.0, 30.0, 1.0, meters.RANGE_61 + 61)}):
        yield


@pytest.mark.usefixtures("metered")
def test_machines_are_metered_before_the_start_and_after_the_end_also_those_that_the_placement_leaves_idle(
    job: EngineJob, tmp_path: Path
) -> None:
    (tmp_path / "work-n3").mkdir()
    transport = LoopbackTransport(tmp_path / "n3", ("env", f"MILLRACE_WORK={tmp_path / 'work-n3'}"))
    machines = {**job.machines, "n3": RunNode("127.0.0.4", transport)}
    job = replace(job, machines=machines, sensors=("power",))

    async def run() -> tuple[list[float | None], EngineAgents]:
        async with agents_of(job) as started:
            watts = [(await started.meter_idle("n3", 0.0, 0.6)).watts]
            await started.start([program(job, node, ORPHANS) for node in ("n1", "n2")], {})
            await started.go([time.monotonic_ns() + 10**9] * 3)
            await started.mark("measure_start")
            await started.end()
            watts += [(await started.meter_idle(node, 0.0, 0.6)).watts for node in machines]
        return watts, started

    watts, ended = asyncio.run(run())
    assert watts == pytest.approx([30.0] * 4, rel=0.2)
    collect(ended.traces, tmp_path / "tables")
    rows = {table: pq.read_table(tmp_path / "tables" / f"{table}.parquet").to_pylist() for table in ("power", "event")}
    assert {row["node"] for row in rows["power"]} == {"n1", "n2", "n3"}
    assert {row["node"] for row in rows["event"] if row["kind"] == "measure_start"} == {"n1", "n2", "n3"}
    assert list((tmp_path / "work-n1" / "engines").iterdir())
    assert not (tmp_path / "work-n3" / "engines").exists()
    assert not processes_in(tmp_path)


@pytest.mark.usefixtures("metered")
def test_this_host_is_metered_by_the_agent_beside_the_controller_and_emulated_nodes_are_not(job: EngineJob) -> None:
    try:
        check_sandbox()
    except UnfitError as error:
        pytest.skip(str(error))
    emulated = LocalNode("10.77.0.1", Path("/run/netns/mr-1"))

    async def run() -> list[IdleBaseline]:
        async with agents_of(replace(job, machines={}, nodes={"n2": emulated})) as started:
            return [await started.meter_idle(node, 0.0, 0.6) for node in ("n1", "n2")]

    here, there = asyncio.run(run())
    assert here.watts == pytest.approx(30.0, rel=0.2)
    assert (there.watts, there.reason) == (None, "an emulated node's energy follows a model, and nothing is measured")


def test_an_answer_to_an_earlier_command_is_not_taken_for_the_expected_one(job: EngineJob) -> None:
    async def run() -> Finished:
        async with Agents({"n1": job.machines["n1"]}, "", lambda node, pid: None) as agents:
            await agents.request_reply("n1", Equip(epoch=1, run="run"), Equipped, 30)
            await agents.send("n1", Write(epoch=1, file="go", text=""))
            return await agents.request_reply("n1", Finish(epoch=1), Finished, 30)

    assert asyncio.run(run()).epoch == 1


def test_a_process_that_ends_is_named_and_its_orphans_are_ended(job: EngineJob) -> None:
    async def run() -> tuple[str, list[int]]:
        async with agents_of(job) as started:
            await started.start([program(job, "n1", ORPHANS)], {})
            log = job.folder_on("n1") / LOGS / "n1" / "daemon.log"
            await until(lambda: log.exists() and log.read_text())
            (daemon,) = (pid for pid in processes_in(job.folder_on("n1")) if ORPHANS in psutil.Process(pid).cmdline())
            orphans = [child.pid for child in psutil.Process(daemon).children()]
            assert len(orphans) == 1
            os.kill(daemon, signal.SIGKILL)
            reason = await asyncio.wait_for(asyncio.shield(started.failed), 30)
            assert psutil.pid_exists(orphans[0])
            await started.end()
            assert (job.folder / LOGS / "n1-daemon.log").read_text() == "begun\n"
        return reason, orphans

    reason, orphans = asyncio.run(run())
    assert reason == "the daemon of n1 was killed by SIGKILL"
    assert not any(map(psutil.pid_exists, orphans))


def test_a_process_that_ends_is_named_also_where_its_log_is_gone(job: EngineJob) -> None:
    async def run() -> str:
        async with agents_of(job) as started:
            code = "import os, sys; os.unlink(sys.argv[1]); sys.exit(3)"
            log = job.folder_on("n1") / LOGS / "n1" / "daemon.log"
            await started.start([program(job, "n1", code, str(log))], {})
            return await asyncio.wait_for(asyncio.shield(started.failed), 30)

    assert asyncio.run(run()) == "the daemon of n1 ended with status 3"


CONTROLLER = """\
import asyncio, sys, pathlib
from agents.protocol import Program, Slot
from engines.engine_agents import EngineAgents
from engines.installation import Engine
from engines.job import EngineJob
from workloads.topology import Component, Topology

async def main(folder):
    topology = Topology("t", (Component("source", "spout", 1, outputs={"default": {"x": "int"}}),))
    job = EngineJob("run", "replay", topology, {"source[0]": Slot("n1", 0)}, {"n1": "127.0.0.2"}, folder)
    async with EngineAgents(job, Engine("any", folder), {"n1": 1}) as agents:
        orphans = "import subprocess, time; subprocess.Popen(['sleep', '600'], env={}, start_new_session=True); " + (
            "print('begun', flush=True); time.sleep(600)"
        )
        await agents.start([("n1", Program("s", (sys.executable, "-c", orphans), str(folder / "log")))], {})
        while "begun" not in (folder / "log").read_text():
            await asyncio.sleep(0.02)
        print(agents.pid("s"), flush=True)
        await asyncio.sleep(600)

asyncio.run(main(pathlib.Path(sys.argv[1])))
"""


def test_killing_the_controller_ends_all_processes_of_this_host(tmp_path: Path) -> None:
    try:
        check_sandbox()
    except UnfitError as error:
        pytest.skip(str(error))
    (tmp_path / "run").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True
    ) as controller:
        assert controller.stdout is not None
        program = psutil.Process(int(controller.stdout.readline()))
        (orphan,) = program.children()
        assert Path(f"/proc/{program.pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
        controller.kill()
    assert not psutil.wait_procs([program, orphan], 60)[1]


def test_a_killed_agent_fails_the_run(job: EngineJob) -> None:
    async def run() -> str:
        async with agents_of(job) as started:
            agents = [pid for pid in processes_in(Path(job.machines["n2"].transport.folder)) if is_agent(pid)]
            os.kill(agents[0], signal.SIGKILL)
            return await asyncio.wait_for(asyncio.shield(started.failed), 30)

    assert asyncio.run(run()) == "the agent of n2 was killed by SIGKILL"
    assert not processes_in(job.folder.parents[1])


def is_agent(pid: int) -> bool:
    return psutil.Process(pid).ppid() == os.getpid()


def test_a_node_that_has_been_silent_fails_the_run(job: EngineJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_channel, "SILENCE_S", 3.0)

    async def run() -> str:
        async with agents_of(job) as started:
            for pid in processes_in(Path(job.machines["n1"].transport.folder)):
                os.kill(pid, signal.SIGSTOP)
            return await asyncio.wait_for(asyncio.shield(started.failed), 30)

    assert asyncio.run(run()).startswith("the agent of n1 has been silent for")
    assert not processes_in(job.folder.parents[1])


def test_nodes_on_one_host_get_ports_of_their_own(job: EngineJob) -> None:
    async def run() -> list[int]:
        counts = {MASTER: 2, "n1": 3, "n2": 4}
        async with agents_of(job, counts) as started:
            firsts = started.first_ports
            return [port for node, count in counts.items() for port in range(firsts[node], firsts[node] + count)]

    ports = asyncio.run(run())
    assert len(set(ports)) == 9
    assert min(ports) >= 20_000


@pytest.mark.parametrize("file", ["../n1-0-1.tsv", "n2-0-1.tsv", "n1.tsv"])
def test_names_of_reports_that_a_node_may_not_use_fail_the_run(job: EngineJob, file: str) -> None:
    async def run() -> str:
        started = agents_of(job)
        started.failed = asyncio.get_running_loop().create_future()
        started.handle_report("n1", Lines(epoch=1, file=file, text="x"))
        return await asyncio.wait_for(started.failed, 1)

    assert "name" in asyncio.run(run())
    assert not list(job.folder.rglob("*1.tsv"))
