"""A controller for tests: node agents as real processes, spoken to over their pipes."""

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
LONG_S = 60.0
"""How long a test waits for what must come; never what it measures."""

Kind = TypeVar("Kind", bound=Message)


class AgentProcess:
    """A node agent and the controller's end of its pipes; a heartbeat goes out five times a second."""

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
        self.said: list[protocol.Report] = []
        self.shown: list[Progress | Vitals] = []
        self._heard: queue.Queue[protocol.Report | None] = queue.Queue()
        self._sending = threading.Lock()
        self._beating = threading.Event()
        self._closed = threading.Event()
        self.beat(True)
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._beat, daemon=True).start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def beat(self, on: bool) -> None:
        """Send heartbeats, or keep silent."""
        (self._beating.set if on else self._beating.clear)()

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
        """The next report of this kind; a `Failed` that was not expected fails the test."""
        deadline = time.monotonic() + LONG_S
        while True:
            try:
                report = self._heard.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                pytest.fail(f"no {kind.__name__}; so far: {self.said[-5:]}")
            if report is None:
                assert self.process.stderr is not None
                pytest.fail(
                    f"the agent ended without {kind.__name__}: {self.said[-5:]}\n{self.process.stderr.read()!r}"
                )
            if isinstance(report, kind) and where(report):
                return report
            if isinstance(report, Failed) and not issubclass(Failed, kind):
                pytest.fail(f"failed: {report.reason} ({report.log})")

    def expect_progress(self, where: Callable[[Progress], bool]) -> Progress:
        return self.expect(Progress, where)

    def expect_after_failures(self, kind: type[Kind]) -> Kind:
        """The next report of this kind, whatever else fails before it."""
        while True:
            report = self.expect(kind | Failed)  # type: ignore[arg-type]  # a union of classes is fine for isinstance
            if isinstance(report, kind):
                return report

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LONG_S
        while not condition():
            assert time.monotonic() < deadline, f"waited too long; the agent said {self.said[-5:]}"
            time.sleep(0.05)

    def children(self) -> tuple[list[int], list[int]]:
        """Process ids of the agent's fork servers, whose standard input is a socket, and of its workers."""
        servers, workers = [], []
        for child in psutil.Process(self.pid).children():
            with suppress(OSError):
                stdin = str(Path(f"/proc/{child.pid}/fd/0").readlink())
                (servers if stdin.startswith("socket:") else workers).append(child.pid)
        return servers, workers

    def worker(self) -> int | None:
        """Process id of the agent's first worker, if it has one."""
        return next(iter(self.children()[1]), None)

    def wait(self) -> int:
        """Exit status of the agent."""
        return self.process.wait(LONG_S)

    def hang_up(self) -> None:
        """End of file on the agent's input."""
        self.beat(False)
        assert self.process.stdin is not None
        with self._sending, suppress(BrokenPipeError):
            self.process.stdin.close()

    def close(self) -> None:
        self._closed.set()
        self._beating.set()
        self.hang_up()
        try:
            self.process.wait(LONG_S)
        finally:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdout, self.process.stderr):
                assert pipe is not None
                pipe.close()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with suppress(ValueError):  # closed under our hands at the end of a test
            for line in self.process.stdout:
                report = protocol.decode_report(line)
                if isinstance(report, Progress | Vitals):
                    self.shown.append(report)
                elif not isinstance(report, Pulse):
                    self.said.append(report)
                self._heard.put(report)
        self._heard.put(None)

    def _beat(self) -> None:
        while not self._closed.is_set():
            self._beating.wait()
            with suppress(BrokenPipeError, ValueError):
                self.send(Heartbeat(sent_ns=time.monotonic_ns()))
            time.sleep(0.2)


@pytest.fixture
def start_agent(tmp_path: Path) -> Iterator[Callable[..., AgentProcess]]:
    """Starts agents; whatever a test does, none is left."""
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
    """Word count over a small text, dealt over the slots of one or more agents."""

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
        """Start everywhere; return who listens, by `node/slot`."""
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
        self.tell(Connect(epoch=epoch, ports=ports))
        for place in self.places:
            next(a for a in self.agents if a.node == place.node).expect(Connected, lambda r: r.epoch == epoch)

    def tell(self, message: Message) -> None:
        for agent in self.agents:
            agent.send(message)

    def go(self, epoch: int = 1) -> None:
        self.tell(Go(epoch=epoch, at_ns=time.monotonic_ns() + 100_000_000))

    def drain(self, epoch: int = 1) -> list[Drained]:
        self.tell(Stop(epoch=epoch))
        return [
            next(a for a in self.agents if a.node == p.node).expect(Drained, lambda r: r.epoch == epoch)
            for p in self.places
        ]

    def finish(self, epoch: int = 1) -> None:
        self.tell(Finish(epoch=epoch))
        for agent in self.agents:
            agent.expect(Finished, lambda r: r.epoch == epoch)

    @staticmethod
    def processes(listening: Mapping[str, Listening]) -> list[ProcessIdentity | None]:
        """The workers that listen."""
        return [identify(report.pid) for report in listening.values()]

    def traces(self, target: Path) -> dict[str, pa.Table]:
        """Collected traces of the run, by table."""
        collect([agent.folder / "run-1" / "traces" for agent in self.agents], target)
        return {path.stem: pq.read_table(path) for path in target.glob("*.parquet")}


@pytest.fixture
def wordcount(tmp_path: Path) -> Callable[..., WordCountRun]:
    """Makes a run over the given agents."""
    return lambda *agents, slots=2: WordCountRun(tmp_path / "wordcount", agents, slots)


@pytest.fixture
def gone_within() -> Callable[[Sequence[ProcessIdentity | None], float], bool]:
    """Tells whether all of these very processes end in time."""

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
