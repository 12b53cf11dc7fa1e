"""Worker processes: spawned into sessions of their own, monitored, and ended in a fixed sequence.

A worker sets its parent-death signal to SIGKILL, and exits at the end of its standard input, so no worker survives a
kill -9 of the agent. The agent ends a worker with `Finish` and end of file, then SIGTERM, then SIGKILL, each for the
whole process group; with SIGKILL at once when the controller is gone. A worker that hangs is killed and reported as
died.
"""

import array
import asyncio
import fcntl
import logging
import os
import signal
import termios
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from agents import protocol
from agents.agent.spawner import Spawned, Spawner
from agents.protocol import Drained, Failed, Finish, Grow, Message, Start, WorkerReport
from agents.protocol.lines import LineSplitter, Output
from agents.protocol.node_folders import RunFolder
from agents.sensors.kernel import process_cpu_ns
from inventory.errors import RunError

FINISH_S = 2.0
TERMINATE_S = 1.0
KILL_S = 1.0
"""Timeouts for a worker to end after `Finish`, after SIGTERM, after SIGKILL."""

_READ_BYTES = 256 * 1024
_LOG_TAIL_BYTES = 4096
_MAX_SHOWN = 300

CHECK_S = 1.0
"""Interval between two checks for a hang."""

MAX_CHECKS: Mapping[str, int] = {"T": 15, "S": 300}
"""State in `/proc` (stopped, or waiting for an event) -> consecutive checks after which a process counts as hung."""

_log = logging.getLogger(__name__)


class HangDetector:
    """Detects a process that hangs: it sends nothing, uses no CPU time, and nothing prevents it from running.

    A worker reports every second, also when it is busy. One that was stopped (SIGSTOP), or whose operator waits for
    an event that never comes, reports no more. A waiting process may only be slow, so it gets longer. Overload is not
    a hang: a process without its turn on a CPU is runnable, one that waits for a disk or for swapped memory is in
    uninterruptible sleep, and one that computes for an hour uses CPU time. A traced process (debugger) does not hang.

    Checks are counted rather than seconds: an agent that was itself suspended has made one check only.
    """

    def __init__(self, pid: int) -> None:
        """Watch a process that was active just now."""
        self._pid = pid
        self._active = True
        self._used_ns: int | None = None
        self._checks = 0

    def note_output(self) -> None:
        """Note that the process has sent something."""
        self._active = True

    def check(self) -> str | None:
        """Check once more; return a description when the process hangs, else None."""
        # A process that has sent something, the usual case, costs no system call.
        used_ns = None if self._active else process_cpu_ns(self._pid)
        state = "" if used_ns is None or used_ns != self._used_ns else process_state(self._pid)
        self._checks = self._checks + 1 if state in MAX_CHECKS else 0
        self._used_ns, self._active = used_ns, False
        if state not in MAX_CHECKS or self._checks < MAX_CHECKS[state]:
            return None
        how = "it is stopped" if state == "T" else "it waits"
        return f"{how}, and has sent nothing and used no CPU time for {self._checks * CHECK_S:g} s"


def process_state(pid: int) -> str:
    """Return the state of a process as one letter; empty when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The process name before the closing bracket may contain anything.
    return stat.rpartition(")")[2].split()[0]


class WorkerProcess:
    """One worker process, from spawning to reaping.

    Attributes:
        epoch: the last epoch started; 0 before the first.
        failed_in: epoch in which it reported a failure or died; None when it did neither.
    """

    def __init__(
        self,
        slot: int,
        process: Spawned,
        log: Path,
        report: Callable[["WorkerProcess", WorkerReport], None],
        fail: Callable[["WorkerProcess", Failed], None],
    ) -> None:
        """Monitor a spawned process.

        Args:
            slot: its slot.
            process: the spawned process; reaped here.
            log: file of its standard error.
            report: called with its reports other than `Failed`.
            fail: called with its `Failed`, or with one that describes an unexpected exit; at most once.
        """
        self.slot, self._process, self._log_path = slot, process, log
        self._report, self._fail = report, fail
        self.epoch = 0
        self.failed_in: int | None = None
        self._lines = LineSplitter()
        self._exited = asyncio.Event()
        self._ending = self._drained = False
        self._input = Output(process.stdin)
        loop = asyncio.get_running_loop()
        loop.add_reader(process.exit, self._on_exit)
        loop.add_reader(process.stdout, self._read)
        self._hang_detector = HangDetector(process.pid)
        self._next_check = loop.call_later(CHECK_S, self._check_hang)

    @classmethod
    async def spawn(
        cls,
        slot: int,
        folder: RunFolder,
        spawner: Spawner,
        columns: bool,
        report: Callable[["WorkerProcess", WorkerReport], None],
        fail: Callable[["WorkerProcess", Failed], None],
    ) -> Self:
        """Start a worker's process in the run's folder; arguments as in `__init__` and `Spawner.spawn`.

        Raises:
            OSError, RunError: it cannot be started.
        """
        log_path = folder.log(slot)
        with log_path.open("ab") as log:
            inside = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                process = await spawner.spawn(log.fileno(), inside, columns)
            finally:
                os.close(inside)
        return cls(slot, process, log_path, report, fail)

    @property
    def alive(self) -> bool:
        """True if the process runs."""
        return not self._exited.is_set()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def start_epoch(self, first: Start | Grow) -> None:
        """Start an epoch in the worker."""
        self.epoch = first.spec.epoch
        self._drained = False
        self.send(first)

    def send(self, message: Message) -> None:
        """Send a command, unless the worker has exited or is being ended."""
        if self.alive and not self._ending:
            self._input.send(message)

    def kill(self) -> None:
        """Kill the process at once, because the controller is gone; `end` reaps it."""
        self._ending = True
        if self.alive:
            self._signal(signal.SIGKILL)

    def crash(self) -> None:
        """Kill the process at once; its death is reported like any other."""
        if self.alive:
            self._signal(signal.SIGKILL)

    async def end(self) -> None:
        """End the process and reap it; kill the rest of its process group."""
        self.send(Finish(epoch=self.epoch))
        self._ending = True
        for patience_s, number in ((FINISH_S, signal.SIGTERM), (TERMINATE_S, signal.SIGKILL), (KILL_S, None)):
            if not self.alive:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._input.flush()
                    self._input.close()
                    await self._exited.wait()
            if number is not None and self.alive:
                _log.warning("sending %s to worker %s (process %s)", number.name, self.slot, self.pid)
                self._signal(number)

    def _read(self) -> None:
        stdout = self._process.stdout
        output = os.read(stdout, _READ_BYTES)
        if not output:
            asyncio.get_running_loop().remove_reader(stdout)
        self._hang_detector.note_output()
        self._handle_output(output)

    def _check_hang(self) -> None:
        # A worker sends nothing before its first epoch, and the end of a worker has time-outs of its own.
        hangs = self._hang_detector.check() if self.epoch and not self._ending else None
        if hangs is None:
            self._next_check = asyncio.get_running_loop().call_later(CHECK_S, self._check_hang)
        else:
            reason = f"worker {self.slot} (process {self.pid}) hangs, and is killed: {hangs}"
            self._failed(self.epoch, reason, died=True)
            self._signal(signal.SIGKILL)

    def _handle_output(self, data: bytes) -> None:
        """Pass on reports; invalid output ends the worker."""
        try:
            for line in self._lines.feed(data):
                if self.failed_in is None:
                    self._handle_report(protocol.decode_report(line))
        except RunError as fault:
            self._failed(self.epoch, str(fault))
            self._signal(signal.SIGKILL)

    def _handle_report(self, report: protocol.Report) -> None:
        if not isinstance(report, WorkerReport):
            raise RunError(f"a worker cannot send {type(report).__name__}")
        if report.epoch > self.epoch or report.slot != self.slot:
            raise RunError(f"the worker has sent a report for epoch {report.epoch}, slot {report.slot}")
        if isinstance(report, Failed):
            self._failed(report.epoch, report.reason)
        else:
            self._drained |= isinstance(report, Drained) and report.epoch == self.epoch
            self._report(self, report)

    def _on_exit(self) -> None:
        process, loop = self._process, asyncio.get_running_loop()
        for watched in (process.exit, process.stdout):
            loop.remove_reader(watched)
        self._next_check.cancel()
        # All its output is in the pipe by now; child processes of an operator may keep the pipe open.
        self._handle_output(_read_available(process.stdout))
        # The group is killed before the worker is reaped, because its number could be reused afterwards.
        self._signal(signal.SIGKILL)
        status = process.reap()
        self._input.close()
        self._exited.set()
        if status or not self._ending:
            reason = f"worker {self.slot} (process {process.pid}) {ending(status)}{self._last_line()}"
            self._failed(self.epoch, reason, died=True)

    def _failed(self, epoch: int, reason: str, *, died: bool = False) -> None:
        # Peers that exit at different times lose their links, so failures after `Finish` are expected. Only a failure
        # after a complete answer is reported, because closing went wrong.
        if self.failed_in is not None or (self._ending and not self._drained):
            _log.info("worker %s: %s", self.slot, reason)
            return
        self.failed_in = epoch
        self._fail(self, Failed(epoch=epoch, slot=self.slot, reason=reason, log=str(self._log_path), died=died))

    def _last_line(self) -> str:
        try:
            with self._log_path.open("rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_TAIL_BYTES))
                lines = log.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        lines = [line.strip() for line in lines if line.strip()]
        return f"; the last line of its log: {lines[-1][:_MAX_SHOWN]}" if lines else ""

    def _signal(self, number: signal.Signals) -> None:
        # A worker that has just been forked may not lead its process group yet.
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError, PermissionError):
                kill(self.pid, number)


def _read_available(pipe: int) -> bytes:
    """Return the bytes that can be read from a pipe without blocking."""
    waiting = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, waiting)
    return os.read(pipe, waiting[0]) if waiting[0] else b""


def ending(status: int | None) -> str:
    """Return a description of how a process ended, given its return code as in `subprocess`.

    >>> ending(-9), ending(3)
    ('was killed by SIGKILL', 'ended with status 3')
    """
    if status is None:
        return "has ended"
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
