"""The controller's end of the program on one node (`engines.node`): its start, requests, what it reports, its end."""

import asyncio
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agents.host.facts import gather
from agents.protocol import HEARTBEAT_S, NONSENSE, SILENCE_S
from agents.protocol.node_folders import component
from agents.trace import FILES
from controller.coordinator.interfaces import Offset
from controller.nodes.agent_channel import OffsetEstimate
from controller.nodes.transport import STDERR_LOG, Remote, Transport
from engines.child_processes import EngineProcess, how_ended
from engines.job import ANSWERS, LOGS, REPORTS, TRACES, EngineJob
from engines.node_protocol import (
    JARS,
    KEPT_LOGS,
    REPORT,
    Answer,
    Ask,
    Clock,
    Command,
    Ended,
    Failed,
    Going,
    Gone,
    Keep,
    Kept,
    Prepare,
    Ready,
    Report,
    Start,
    Started,
    Stop,
    Stopped,
)
from inventory.errors import MillraceError, RunError
from inventory.foreign import printable

HELLO_S = 60.0
"""Timeout for the program to start on a node."""

ANSWER_S = 60.0
"""Timeout for its answers; jars are synced to disk before one of them."""

BYE_S = 5.0
"""Time for the program to end before it is killed."""

A = TypeVar("A", Ready, Kept, Started, Going, Stopped)


class NodeProgram:
    """The program on a node, or on this host.

    Attributes:
        ready: its first answer.
        traces: folder of the node's traces on this host, once they have been fetched.
        gone: ids of processes of executors that have ended.
    """

    ready: Ready

    def __init__(self, node: str, transport: Transport, job: EngineJob, fail: Callable[[str], None]) -> None:
        """Prepare it; `fail` is called with the reason when something has ended by itself."""
        self._node, self._transport, self._job, self._fail = node, transport, job, fail
        self._where = f"node {node}" if node else "this host"
        self._remote: Remote | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._pending: dict[type, asyncio.Future[Any]] = {}
        self._logs: dict[str, Path] = {}
        self._estimate = OffsetEstimate()
        self._answered_s = time.monotonic()
        self._is_closing = False
        self.traces: Path | None = None
        self.gone: set[int] = set()

    async def open(self, ports: int, engine: str) -> None:
        """Start the program, and wait until the node's clock is known."""
        self._remote = await self._transport.start("engines.node")
        self._tasks.append(asyncio.create_task(self._listen(self._remote)))
        self.ready = await self.request(Prepare(self._node, ports, engine), Ready, HELLO_S)
        clock = gather()["clock"]
        self._has_our_clock = clock is not None and self.ready.facts.get("clock") == clock
        self._answered_s = time.monotonic()
        self._tasks.append(asyncio.create_task(self._ask_regularly()))
        while self._estimate.at(time.monotonic_ns()) is None:
            if self._tasks[0].done():
                raise RunError(f"the program on {self._where} ended")
            await asyncio.sleep(0.02)

    async def copy(self, jars: Sequence[Path], files: Sequence[Path]) -> None:
        """Copy files of the job to the node, and jars if it does not have them yet."""
        if not self.ready.has_engine:
            for jar in jars:
                await self._transport.put(jar, f"{JARS}/{jar.name}")
            await self.request(Keep(), Kept, ANSWER_S)
        for file in files:
            await self._transport.put(file, str(file.relative_to(self._job.folder)))

    async def start(self, processes: Sequence[EngineProcess], daemon: str) -> None:
        """Start processes and sensors."""
        there = self._job.folder_on(self._node)
        self._logs = {each.name: Path(each.log).relative_to(there / LOGS) for each in processes}
        address = self._job.addresses.get(self._node, "")
        await self.request(
            Start(self._job.run, address, list(processes), list(self._job.sensors), daemon), Started, ANSWER_S
        )

    @property
    def offset(self) -> Offset:
        if self._has_our_clock:
            return Offset(0, 0)
        found = self._estimate.at(time.monotonic_ns())
        if found is None:
            raise RunError(f"the clock of {self._where} is not known yet")
        return found

    async def send(self, command: Command) -> None:
        """Send a command.

        Raises:
            RunError: the program has ended.
        """
        if self._remote is None:
            raise RunError(f"the program on {self._where} is not running")
        try:
            await self._remote.write(msgspec.json.encode(command) + b"\n")
        except ConnectionError:
            raise RunError(f"the program on {self._where} ended") from None

    async def request(self, command: Command, kind: type[A], seconds: float) -> A:
        """Send a command and return its answer.

        Raises:
            RunError: it fails, or does not answer in time.
        """
        pending = self._pending[kind] = asyncio.get_running_loop().create_future()
        try:
            await self.send(command)
            async with asyncio.timeout(seconds):
                answer: A = await pending
        except TimeoutError:
            raise RunError(f"the program on {self._where} has not answered within {seconds:g} s") from None
        finally:
            del self._pending[kind]
        return answer

    async def collect_answers(self, names: Sequence[str]) -> None:
        """Copy files of answers to this host."""
        folder = await self._transport.fetch(ANSWERS, "*.tsv")
        for name in names:
            with suppress(FileNotFoundError):
                await asyncio.to_thread(shutil.copyfile, folder / name, self._job.folder / ANSWERS / name)

    async def close(self) -> None:
        """End everything on the node, and fetch its logs and traces."""
        self._is_closing = True
        remote = self._remote
        if remote is None:
            return
        try:
            with suppress(MillraceError):
                await self.request(Stop(), Stopped, ANSWER_S)
                if self._node:
                    await self._fetch()
            remote.end_input()
            with suppress(TimeoutError):
                await asyncio.wait_for(remote.wait(), BYE_S)
        finally:
            remote.kill()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await remote.wait()

    async def _fetch(self) -> None:
        logs = await self._transport.fetch(KEPT_LOGS, "*")
        for log in logs.iterdir() if logs.is_dir() else ():
            await asyncio.to_thread(shutil.copyfile, log, self._job.folder / LOGS / log.name)
        self.traces = await self._transport.fetch(TRACES, FILES)

    async def _listen(self, remote: Remote) -> None:
        decoder = msgspec.json.Decoder(Answer)
        try:
            while line := await remote.read_line():
                self._take(decoder.decode(line), time.monotonic_ns())
            why = f"the program on {self._where} ended{await self._complaint() if Ready in self._pending else ''}"
        except (MillraceError, OSError, *NONSENSE) as fault:
            why = f"the program on {self._where}: {fault}"
        for pending in self._pending.values():
            if not pending.done():
                pending.set_exception(RunError(why))
        if not self._is_closing:
            self._fail(why)

    async def _complaint(self) -> str:
        """Return `: ` and the last line that the program wrote to standard error; empty if none."""
        try:
            log = await self._transport.fetch("", STDERR_LOG) / STDERR_LOG
            text = log.read_text(encoding="utf-8", errors="replace")
        except (MillraceError, OSError):
            return ""
        return f": {text.strip().splitlines()[-1]}" if text.strip() else ""

    def _take(self, answer: Answer, now_ns: int) -> None:
        """Take in an answer.

        Raises:
            RunError: it is inconsistent.
        """
        match answer:
            case Clock(sent_ns=sent, received_ns=received, answered_ns=answered):
                if sent > now_ns or received > answered:
                    raise RunError(f"a reading of the clock that nobody asked for: {answer}")
                self._answered_s = time.monotonic()
                self._estimate.add(sent, received, answered, now_ns)
            case Report(file=file, text=text):
                name = REPORT.fullmatch(component(file))
                if name is None or name["node"] != self._node:
                    raise RunError(f"{file!r} is no name of a report")
                with (self._job.folder / REPORTS / file).open("a", encoding="utf-8") as report:
                    report.write(text)
            case Ended(name=name, status=status, tail=tail):
                self._keep_tail(name, tail)
                self._fail(how_ended(name, status))
            case Gone(pid=pid):
                self.gone.add(pid)
            case Failed(reason=reason):
                self._fail(f"{self._where}: {reason}")
                for pending in self._pending.values():
                    if not pending.done():
                        pending.set_exception(RunError(f"{self._where}: {printable(reason)}"))
            case Ready() | Kept() | Started() | Going() | Stopped():
                waiting = self._pending.get(type(answer))
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)

    def _keep_tail(self, name: str, tail: str) -> None:
        """Keep the end of a log of a node for messages; the whole log comes at the end."""
        if name not in self._logs:
            raise RunError(f"{name!r} was not started there")
        if self._node:
            log = self._job.folder / LOGS / "-".join(self._logs[name].parts)
            log.write_text(tail, encoding="utf-8")

    async def _ask_regularly(self) -> None:
        while not self._is_closing:
            silent_s = time.monotonic() - self._answered_s
            # A request has a timeout of its own, and may keep the node busy.
            if silent_s > SILENCE_S and not self._pending:
                self._fail(f"{self._where} has been silent for {silent_s:.0f} s")
                return
            with suppress(RunError):
                await self.send(Ask(time.monotonic_ns()))
            await asyncio.sleep(HEARTBEAT_S)
