"""Processes of an engine on one node that is a machine of its own, or those on the controller's host.

    python -P -m engines.node

The program runs in the job's folder on the node. It reads commands and writes lines, JSON with a `type`: it starts
processes and names those that end, passes on what executors report, writes their commands, and runs the node's sensors.
When its input ends, or when it is told to stop, it ends all processes that it has started, and all of theirs: those
whose parent has ended become its children. Should it be killed itself, the lease of the node ends them, which finds
them by their environment (`controller.ssh.node_lease_daemon`).
"""

import ipaddress
import os
import random
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import psutil

from agents.host.facts import gather
from agents.power.reader import MeteredHost
from agents.protocol.lines import LineSplitter
from agents.sensors import Host, Row
from agents.sensors.interference import InterferenceMonitor
from agents.sensors.sampler import Sampler
from agents.trace import AGENT, TraceWriter
from controller.host.namespaces import die_with_parent
from engines.child_processes import EngineProcess, copy_logs, end_of, start_process
from engines.job import CONTROL, FINISH, LIBRARIES, LOGS, MASTER, REPORTS, TRACES, make_folders, write_go
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
    Finish,
    Go,
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
from inventory.atomic_files import complete_folder
from inventory.libc import ADOPTS_ORPHANS, set_property

ENGINES = "engines"
"""Folder in the node's work folder that keeps engines' jars, for later campaigns, too."""

WORK = "MILLRACE_WORK"
"""Environment variable with the node's work folder, which the controller sets."""

FIRST_PORT, LAST_PORT = 20_000, 32_000
"""Ports that a system does not give to connections by default."""

MOST_TAIL = 64 * 1024
"""Bytes of the log of a process that has ended, for messages."""

MOST_REPORT = 512 * 1024
"""Bytes of a report in one line."""

STOP_S = 10.0
"""Timeout for the last sample of sensors."""

_POLL_S = 0.1
_CHECK_S = 1.0
_PIECE = 256 * 1024

MARKS = ("measure_start", "measure_end")

_writing = threading.Lock()


class EngineNode:
    """The program's state: what runs on the node."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._node, self._engine = MASTER, ""
        self._held = ExitStack()
        self._running: dict[int, EngineProcess] = {}
        self._read: dict[str, int] = {}
        self._executors: dict[int, int] = {}
        self._checked_s = 0.0
        self._sampler: Sampler | None = None
        self._monitor: InterferenceMonitor | None = None
        self._marks: dict[str, int] = {}
        self._passed: set[str] = set()

    def handle(self, command: Command, now_ns: int) -> None:
        """Carry out a command that was received at `now_ns`, and answer it.

        Raises:
            OSError: it cannot be carried out.
        """
        match command:
            case Prepare():
                self._prepare(command)
            case Keep():
                final = self._kept
                final.parent.mkdir(exist_ok=True)
                complete_folder(self._folder / JARS, final)
                self._link()
                say(Kept())
            case Start():
                self._start(command)
            case Ask(sent_ns=sent_ns):
                say(Clock(sent_ns, now_ns, time.monotonic_ns()))
            case Go(times=times):
                write_go(self._folder, times)
                self._marks = {
                    kind: at_ns for kind, at_ns in zip(MARKS, times[1:3], strict=True) if kind not in self._passed
                }
                say(Going())
            case Finish():
                (self._folder / CONTROL / FINISH).touch()
            case Stop():
                self.end()
                copy_logs(self._folder / LOGS, self._folder / KEPT_LOGS)
                say(Stopped())

    def watch(self) -> None:
        """Report what has ended and what executors have written, and pass on marks to the sensors."""
        self._reap()
        if self._node == MASTER:
            return
        for path in sorted((self._folder / REPORTS).glob("*.tsv")):
            self._relay(path)
        now_s = time.monotonic()
        if now_s >= self._checked_s + _CHECK_S:
            self._checked_s = now_s
            for slot, pid in list(self._executors.items()):
                if not _is_alive(pid):
                    del self._executors[slot]
                    say(Gone(pid))
        for kind in [kind for kind, at_ns in self._marks.items() if time.monotonic_ns() >= at_ns]:
            del self._marks[kind]
            self._passed.add(kind)
            if self._sampler is not None and self._monitor is not None:
                self._monitor.mark(kind)
                self._sampler.mark(kind)

    def end(self) -> None:
        """Take the last sample, and end all processes."""
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.stop(STOP_S)
        self._running.clear()
        self._executors.clear()
        end_children()

    @property
    def _kept(self) -> Path:
        return Path(os.environ[WORK]) / ENGINES / self._engine

    def _prepare(self, command: Prepare) -> None:
        self._node, self._engine = command.node, command.engine
        make_folders(self._folder)
        has_engine = self._node == MASTER or self._kept.is_dir()
        if has_engine and self._node != MASTER:
            self._link()
        say(Ready(gather(), self._free_ports(command.ports), has_engine))

    def _link(self) -> None:
        (self._folder / LIBRARIES).symlink_to(self._kept)

    def _free_ports(self, count: int) -> int:
        """Find free ports in a row, and hold them until processes start; return the first one, 0 if there is none."""
        if not count:
            return 0
        firsts = range(FIRST_PORT, LAST_PORT - count)
        for first in random.sample(firsts, len(firsts)):  # so that nodes on one host seldom try the same
            with ExitStack() as stack, suppress(OSError):
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("", port))
                self._held = stack.pop_all()
                return first
        raise OSError(f"there are no {count} free ports in a row between {FIRST_PORT} and {LAST_PORT}")

    def _start(self, command: Start) -> None:
        self._held.close()
        for process in command.processes:
            self._running[start_process(process, _die_with_us)] = process
        daemon = next((pid for pid, each in self._running.items() if each.name == command.daemon), None)
        if self._node != MASTER:
            self._start_sensors(command, daemon)
        say(Started())

    def _start_sensors(self, command: Start, daemon: int | None) -> None:
        shared = ipaddress.ip_address(command.address).is_loopback
        host = Host(self._node, command.address, shared, daemon, self._executors.copy)
        monitor = self._monitor = InterferenceMonitor(
            MeteredHost.here(), shared, lambda: [os.getpid(), *_descendants()]
        )
        writer = TraceWriter(self._folder / TRACES, command.run, self._node, AGENT)

        def on_rows(_: Sequence[Row]) -> None:
            for event in monitor.check():
                sampler.event(*event)

        sampler = self._sampler = Sampler(command.sensors, host, writer, lambda reason: say(Failed(reason)), on_rows)
        sampler.start()

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                process = self._running.pop(found[0], None)
                if process is not None:
                    tail = b""
                    with suppress(OSError):
                        tail = end_of(Path(process.log), MOST_TAIL)
                    status = os.waitstatus_to_exitcode(found[1])
                    say(Ended(process.name, status, tail.decode(errors="replace")))

    def _relay(self, path: Path) -> None:
        begin = self._read.get(path.name, 0)
        if begin == path.stat().st_size:
            return
        with path.open("rb") as file:
            file.seek(begin)
            data = file.read(MOST_REPORT)
        complete = data[: data.rfind(b"\n") + 1]
        name = REPORT.fullmatch(path.name)
        if not complete or name is None:
            return
        if not begin:
            self._executors[int(name["slot"])] = int(name["pid"])
        self._read[path.name] = begin + len(complete)
        say(Report(path.name, complete.decode(errors="replace")))


def say(answer: Answer) -> None:
    """Write a line; several threads may."""
    data = msgspec.json.encode(answer) + b"\n"
    # Longer lines than a pipe takes at once would be mixed up.
    with _writing:
        while data:
            data = data[os.write(1, data) :]


def end_children() -> None:
    """Send SIGKILL to all descendants until none is left."""
    while pids := _descendants():
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.02)


def _descendants() -> list[int]:
    return [child.pid for child in psutil.Process().children(recursive=True)]


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _die_with_us() -> None:
    die_with_parent(signal.SIGKILL)


def serve(node: EngineNode) -> None:
    """Carry out commands until the input ends."""
    lines = LineSplitter()
    decoder = msgspec.json.Decoder(Command)
    while True:
        if select.select([0], [], [], _POLL_S)[0]:
            now_ns = time.monotonic_ns()
            piece = os.read(0, _PIECE)
            if not piece:
                return
            for line in lines.feed(piece):
                try:
                    node.handle(decoder.decode(line), now_ns)
                except OSError as fault:
                    say(Failed(str(fault)))
        node.watch()


def main() -> int:
    """Serve one node on standard input and output; return the exit status."""
    set_property(ADOPTS_ORPHANS, True)
    node = EngineNode(Path.cwd())
    try:
        with suppress(BrokenPipeError):
            serve(node)
    finally:
        node.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
