"""A minimal controller: node agents as real processes, controlled over their pipes."""

import hashlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agents import protocol
from agents.collected_traces import collect
from agents.protocol import (
    VERSION,
    Connect,
    Connected,
    Drained,
    ExecutorSpec,
    Failed,
    Finish,
    Finished,
    Go,
    Heartbeat,
    Hello,
    InputFile,
    Listening,
    Message,
    Progress,
    Pulse,
    RunSpec,
    Slot,
    Start,
    Stop,
    Vitals,
    Welcome,
    workers_of,
)
from controller.host.process_identity import ProcessIdentity, identify
from inventory.documents import to_plain
from workloads.key_groups import first_ownership
from workloads.workload import load_workload

AGENT = (sys.executable, "-P", "-m", "agents")
TIMEOUT_S = 60.0
"""Timeout of waits; never a measured quantity."""

Kind = TypeVar("Kind", bound=Message)


class AgentProcess:
    """A node agent, and the controller's end of its pipes; sends five heartbeats a second.

    Attributes:
        reports: reports so far, without pulses and metrics.
        metrics: `Progress` and `Vitals` reports so far.
    """

    def __init__(self, folder: Path, node: str, address: str, command: Sequence[str], env: Mapping[str, str]) -> None:
        self.folder, self.node, self.address = folder, node, address
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, **env},
        )
        self.reports: list[protocol.Report] = []
        self.metrics: list[Progress | Vitals] = []
        self._received: queue.Queue[protocol.Report | None] = queue.Queue()
        self._sending = threading.Lock()
        self._heartbeats_on = threading.Event()
        self._closed = threading.Event()
        self.send_heartbeats(True)
        threading.Thread(target=self._read_loop, daemon=True).start()
        threading.Thread(target=self._heartbeat_loop, daemon=True).start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def send_heartbeats(self, on: bool) -> None:
        """Start or stop sending heartbeats."""
        (self._heartbeats_on.set if on else self._heartbeats_on.clear)()

    def send(self, message: Message | bytes) -> None:
        line = message if isinstance(message, bytes) else protocol.encode(message)
        assert self.process.stdin is not None
        with self._sending:
            self.process.stdin.write(line)
            self.process.stdin.flush()

    def welcome(self) -> Hello:
        hello = self.expect(Hello)
        self.send(Welcome(version=VERSION, node=self.node, address=self.address, folder=str(self.folder)))
        return hello

    def expect(self, kind: type[Kind], where: Callable[[Kind], bool] = lambda _: True) -> Kind:
        """Return the next report of this kind; an unexpected `Failed` fails the test."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                report = self._received.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                pytest.fail(f"no {kind.__name__}; so far: {self.reports[-5:]}")
            if report is None:
                assert self.process.stderr is not None
                pytest.fail(
                    f"the agent ended without {kind.__name__}: {self.reports[-5:]}\n{self.process.stderr.read()!r}"
                )
            if isinstance(report, kind) and where(report):
                return report
            if isinstance(report, Failed) and not issubclass(Failed, kind):
                pytest.fail(f"failed: {report.reason} ({report.log})")

    def expect_progress(self, where: Callable[[Progress], bool]) -> Progress:
        return self.expect(Progress, where)

    def expect_after_failures(self, kind: type[Kind]) -> Kind:
        """Return the next report of this kind, and ignore failures before it."""
        while True:
            report = self.expect(kind | Failed)  # type: ignore[arg-type]  # a union of classes is fine for isinstance
            if isinstance(report, kind):
                return report

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, f"waited too long; the agent said {self.reports[-5:]}"
            time.sleep(0.05)

    def children(self) -> tuple[list[int], list[int]]:
        """Return process ids of the agent's fork servers, whose standard input is a socket, and of its workers."""
        servers, workers = [], []
        for child in psutil.Process(self.pid).children():
            with suppress(OSError):
                stdin = str(Path(f"/proc/{child.pid}/fd/0").readlink())
                (servers if stdin.startswith("socket:") else workers).append(child.pid)
        return servers, workers

    def worker(self) -> int | None:
        """Return the process id of the agent's first worker, if any."""
        return next(iter(self.children()[1]), None)

    def wait(self) -> int:
        """Wait for the agent's exit; return its status."""
        return self.process.wait(TIMEOUT_S)

    def close_input(self) -> None:
        """Close the agent's standard input."""
        self.send_heartbeats(False)
        assert self.process.stdin is not None
        with self._sending, suppress(BrokenPipeError):
            self.process.stdin.close()

    def close(self) -> None:
        self._closed.set()
        self._heartbeats_on.set()
        self.close_input()
        try:
            self.process.wait(TIMEOUT_S)
        finally:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdout, self.process.stderr):
                assert pipe is not None
                pipe.close()

    def _read_loop(self) -> None:
        assert self.process.stdout is not None
        with suppress(ValueError):  # closed concurrently at the end of a test
            for line in self.process.stdout:
                report = protocol.decode_report(line)
                if isinstance(report, Progress | Vitals):
                    self.metrics.append(report)
                elif not isinstance(report, Pulse):
                    self.reports.append(report)
                self._received.put(report)
        self._received.put(None)

    def _heartbeat_loop(self) -> None:
        while not self._closed.is_set():
            self._heartbeats_on.wait()
            with suppress(BrokenPipeError, ValueError):
                self.send(Heartbeat(sent_ns=time.monotonic_ns()))
            time.sleep(0.2)


@pytest.fixture
def start_agent(tmp_path: Path) -> Iterator[Callable[..., AgentProcess]]:
    """Starts agents; all end with the test."""
    started: list[AgentProcess] = []

    def start(
        node: str = "n1",
        address: str = "127.0.0.2",
        command: Sequence[str] = AGENT,
        env: Mapping[str, str] | None = None,
    ) -> AgentProcess:
        folder = tmp_path / "nodes" / node
        folder.mkdir(parents=True, exist_ok=True)
        agent = AgentProcess(folder, node, address, command, env or {})
        started.append(agent)
        return agent

    yield start
    for agent in started:
        agent.close()


TEXT = "to be or not to be that is the question\nwhether tis nobler in the mind to suffer\n" * 50


class WordCountRun:
    """Word count on a small text, distributed over the slots of agents."""

    def __init__(self, folder: Path, agents: Sequence[AgentProcess], slots: int = 2) -> None:
        self.agents = agents
        folder.mkdir(parents=True, exist_ok=True)
        text = folder / "text.txt"
        text.write_text(TEXT)
        self.params = {"text": str(text), "parallelism": {"spout": 2, "split": 2, "count": 2}, "ackers": 1}
        self.workload = load_workload("wordcount", self.params)
        self.inputs = self.workload.prepare(folder / "prepared")
        for agent in agents:
            (agent.folder / "inputs").mkdir(exist_ok=True)
            for prepared in self.inputs:
                (agent.folder / "inputs" / prepared.path.name).write_bytes(prepared.path.read_bytes())
        self.topology = self.workload.topology()
        places = [Slot(agent.node, slot) for slot in range(slots) for agent in agents]
        self.places = places[: len(self.topology.executors)]
        self.executors = tuple(
            ExecutorSpec(e.component, e.index, places[at % len(places)]) for at, e in enumerate(self.topology.executors)
        )

    def spec(self, epoch: int = 1, **changes: Any) -> RunSpec:
        spec = RunSpec(
            run="run-1",
            epoch=epoch,
            workload="wordcount",
            params=self.params,
            topology=to_plain(self.topology),
            executors=self.executors,
            addresses={agent.node: agent.address for agent in self.agents},
            key=hashlib.sha256(b"key of this test").hexdigest(),
            rate={"kind": "constant", "tuples_per_s": 2000.0},
            seed=1,
            inputs=tuple(InputFile(i.name, i.path.name, i.sha256) for i in self.inputs),
            workers=workers_of(self.executors),
            owners=first_ownership(self.topology.keyed),
        )
        return msgspec.structs.replace(spec, **changes)

    def start(self, epoch: int = 1, sensors: Sequence[str] = (), **changes: Any) -> dict[str, Listening]:
        """Start the epoch on all agents; return the reports of listening workers, by `node/slot`."""
        for agent in self.agents:
            agent.send(Start(spec=self.spec(epoch, **changes), sensors=tuple(sensors)))
        here: dict[str, Listening] = {}
        for place in self.places:
            agent = next(a for a in self.agents if a.node == place.node)
            report = agent.expect(Listening, lambda r: r.epoch == epoch)
            here[f"{place.node}/{report.slot}"] = report
        return here

    def connect(self, listening: Mapping[str, Listening], epoch: int = 1) -> None:
        ports = {where: report.port for where, report in listening.items()}
        self.send_all(Connect(epoch=epoch, ports=ports))
        for place in self.places:
            next(a for a in self.agents if a.node == place.node).expect(Connected, lambda r: r.epoch == epoch)

    def send_all(self, message: Message) -> None:
        for agent in self.agents:
            agent.send(message)

    def go(self, epoch: int = 1) -> None:
        self.send_all(Go(epoch=epoch, at_ns=time.monotonic_ns() + 100_000_000))

    def drain(self, epoch: int = 1) -> list[Drained]:
        self.send_all(Stop(epoch=epoch))
        return [
            next(a for a in self.agents if a.node == p.node).expect(Drained, lambda r: r.epoch == epoch)
            for p in self.places
        ]

    def finish(self, epoch: int = 1) -> None:
        self.send_all(Finish(epoch=epoch))
        for agent in self.agents:
            agent.expect(Finished, lambda r: r.epoch == epoch)

    @staticmethod
    def processes(listening: Mapping[str, Listening]) -> list[ProcessIdentity | None]:
        """Return the processes of listening workers."""
        return [identify(report.pid) for report in listening.values()]

    def traces(self, target: Path) -> dict[str, pa.Table]:
        """Return the collected traces of the run, by table."""
        collect([agent.folder / "run-1" / "traces" for agent in self.agents], target)
        return {path.stem: pq.read_table(path) for path in target.glob("*.parquet")}


@pytest.fixture
def wordcount(tmp_path: Path) -> Callable[..., WordCountRun]:
    """Creates a run on the given agents."""
    return lambda *agents, slots=2: WordCountRun(tmp_path / "wordcount", agents, slots)


@pytest.fixture
def gone_within() -> Callable[[Sequence[ProcessIdentity | None], float], bool]:
    """Returns whether all given processes end within a time."""

    def gone(processes: Sequence[ProcessIdentity | None], seconds: float) -> bool:
        assert processes
        assert all(processes), "a process was gone before it was looked for"
        deadline = time.monotonic() + seconds
        while any(process.is_alive() for process in processes if process):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    return gone
