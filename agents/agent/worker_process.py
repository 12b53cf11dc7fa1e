"""Worker processes: spawned into sessions of their own, listened to, and ended in one order.

A worker asks the kernel to be killed when its agent dies, and ends at the end of its standard input; so a kill -9 of
the agent leaves nothing. An agent that lives ends a worker with `Finish` and end of file, then SIGTERM, then SIGKILL,
each for the whole process group; with SIGKILL at once when the controller is gone. One that hangs is killed, which
makes it one that has died.
"""

import array
import asyncio
import fcntl
import logging
import os
import signal
import termios
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from agents import protocol
from agents.agent.hang_detector import LOOK_S, HangDetector
from agents.agent.spawner import Spawned, Spawner
from agents.protocol import Drained, Failed, Finish, Grow, Message, Start, WorkerReport
from agents.protocol.line_reader import Lines
from agents.protocol.node_folders import RunFolder
from agents.protocol.writer import Output
from inventory.errors import RunError

FINISH_S = 2.0
TERMINATE_S = 1.0
KILL_S = 1.0
"""How long a worker may take to end after `Finish`, after SIGTERM, after SIGKILL."""

_READ_BYTES = 256 * 1024
_LOG_TAIL_BYTES = 4096
_MOST_SHOWN = 300

_log = logging.getLogger(__name__)


class WorkerProcess:
    """One worker process, from spawn to reaping.

    Attributes:
        epoch: of the start that it was told last; 0 before the first.
        failed_in: epoch in which it failed, by its own account or by ending; None when it did not.
    """

    def __init__(
        self,
        slot: int,
        process: Spawned,
        log: Path,
        report: Callable[["WorkerProcess", WorkerReport], None],
        fail: Callable[["WorkerProcess", Failed], None],
    ) -> None:
        """Listen to it.

        Args:
            slot: its slot.
            process: what was spawned; reaped here.
            log: file of its standard error.
            report: takes what it says, but for `Failed`.
            fail: takes its `Failed`, or one that says how it ended without having been told to; at most one.
        """
        self.slot, self._process, self._log_path = slot, process, log
        self._report, self._fail = report, fail
        self.epoch = 0
        self.failed_in: int | None = None
        self._lines = Lines()
        self._over = asyncio.Event()
        self._told_to_end = self._drained = False
        self._input = Output(process.stdin)
        loop = asyncio.get_running_loop()
        loop.add_reader(process.exit, self._conclude)
        loop.add_reader(process.stdout, self._read)
        self._hang_detector = HangDetector(process.pid)
        self._next_look = loop.call_later(LOOK_S, self._look)

    @classmethod
    async def spawn(
        cls,
        slot: int,
        folder: RunFolder,
        spawner: Spawner,
        report: Callable[["WorkerProcess", WorkerReport], None],
        fail: Callable[["WorkerProcess", Failed], None],
    ) -> Self:
        """Start a worker's process in the run's folder; arguments as above.

        Raises:
            OSError, RunError: it cannot be started.
        """
        log_path = folder.log(slot)
        with log_path.open("ab") as log:
            inside = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                process = await spawner.spawn(log.fileno(), inside)
            finally:
                os.close(inside)
        return cls(slot, process, log_path, report, fail)

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return not self._over.is_set()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def begin(self, first: Start | Grow) -> None:
        """Let it begin an epoch."""
        self.epoch = first.spec.epoch
        self._drained = False
        self.tell(first)

    def tell(self, message: Message) -> None:
        """Send a command; a worker that is gone or about to be gets none."""
        if self.alive and not self._told_to_end:
            self._input.send(message)

    def kill(self) -> None:
        """End the process without ceremony: nobody is left who wants to know what it has done; `end` reaps it."""
        self._told_to_end = True
        if self.alive:
            self._signal(signal.SIGKILL)

    async def end(self) -> None:
        """End the process and reap it; what is left of its group is killed."""
        self.tell(Finish(epoch=self.epoch))
        self._told_to_end = True
        for patience_s, number in ((FINISH_S, signal.SIGTERM), (TERMINATE_S, signal.SIGKILL), (KILL_S, None)):
            if not self.alive:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._input.flush()
                    self._input.close()
                    await self._over.wait()
            if number is not None and self.alive:
                _log.warning("worker %s (process %s) gets %s", self.slot, self.pid, number.name)
                self._signal(number)

    def _read(self) -> None:
        stdout = self._process.stdout
        data = os.read(stdout, _READ_BYTES)
        if not data:
            asyncio.get_running_loop().remove_reader(stdout)
        self._hang_detector.spoke()
        self._hear(data)

    def _look(self) -> None:
        # Before it has been told to begin it has nothing to say; one that is to end has its time for that.
        hangs = self._hang_detector.look() if self.epoch and not self._told_to_end else None
        if hangs is None:
            self._next_look = asyncio.get_running_loop().call_later(LOOK_S, self._look)
        else:
            reason = f"worker {self.slot} (process {self.pid}) hangs, and is killed: {hangs}"
            self._failed(self.epoch, reason, died=True)
            self._signal(signal.SIGKILL)

    def _hear(self, data: bytes) -> None:
        """Pass on reports; nonsense ends the worker."""
        try:
            for line in self._lines.feed(data):
                if self.failed_in is None:
                    self._heard(protocol.decode_report(line))
        except RunError as fault:
            self._failed(self.epoch, str(fault))
            self._signal(signal.SIGKILL)

    def _heard(self, report: protocol.Report) -> None:
        if not isinstance(report, WorkerReport):
            raise RunError(f"a worker has no business to send {type(report).__name__}")
        if report.epoch > self.epoch or report.slot != self.slot:
            raise RunError(f"the worker speaks of epoch {report.epoch}, slot {report.slot}")
        if isinstance(report, Failed):
            self._failed(report.epoch, report.reason)
        else:
            self._drained |= isinstance(report, Drained) and report.epoch == self.epoch
            self._report(self, report)

    def _conclude(self) -> None:
        process, loop = self._process, asyncio.get_running_loop()
        for watched in (process.exit, process.stdout):
            loop.remove_reader(watched)
        self._next_look.cancel()
        # All that it said is in the pipe by now; helpers that an operator started may hold that open for ever.
        self._hear(_what_waits(process.stdout))
        # They are killed before the worker is reaped: later the group's number could be a stranger's.
        self._signal(signal.SIGKILL)
        status = process.reap()
        self._input.close()
        self._over.set()
        if status or not self._told_to_end:
            reason = f"worker {self.slot} (process {process.pid}) {ending(status)}{self._last_line()}"
            self._failed(self.epoch, reason, died=True)

    def _failed(self, epoch: int, reason: str, *, died: bool = False) -> None:
        # Peers that end at different moments lose their links: after `Finish` that is no news, unless the
        # answer was complete and something went wrong with closing it.
        if self.failed_in is not None or (self._told_to_end and not self._drained):
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
        said = [line.strip() for line in lines if line.strip()]
        return f"; the last line of its log: {said[-1][:_MOST_SHOWN]}" if said else ""

    def _signal(self, number: signal.Signals) -> None:
        # A worker that has only just been forked may not lead its group yet.
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError, PermissionError):
                kill(self.pid, number)


def _what_waits(pipe: int) -> bytes:
    """What can be read from a pipe at once."""
    waiting = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, waiting)
    return os.read(pipe, waiting[0]) if waiting[0] else b""


def ending(status: int | None) -> str:
    """How a process ended, in words, from its return code as `subprocess` gives it.

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
