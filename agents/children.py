"""Worker processes: spawned into sessions of their own, listened to, and ended in one order.

A worker asks the kernel to be killed when its agent dies, and ends at the end of its standard input; so a kill -9 of
the agent leaves nothing. An agent that lives ends a worker with `Finish` and end of file, then SIGTERM, then SIGKILL,
each for the whole process group.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

from agents import protocol
from agents.lines import Lines
from agents.protocol import Drained, Failed, Finish, Message, WorkerReport
from inventory.errors import RunError

WORKER = (sys.executable, "-P", "-m", "agents.worker")
"""The command that starts a worker."""

FINISH_S = 2.0
TERMINATE_S = 1.0
KILL_S = 1.0
"""How long a worker may take to end after `Finish`, after SIGTERM, after SIGKILL."""

_LAST_WORDS_S = 0.5
"""How long the pipe of a worker that has ended is read on, when something else still holds it."""

_LOG_TAIL_BYTES = 4096
_MOST_SHOWN = 300

_log = logging.getLogger(__name__)


class Child(asyncio.SubprocessProtocol):
    """One worker process, from spawn to reaping."""

    def __init__(self, slot: int, epoch: int, log: Path, send: Callable[[Message], None]) -> None:
        """Describe it; `spawn` starts it.

        Args:
            slot: its slot.
            epoch: the start it belongs to.
            log: file for its standard error and all that is printed.
            send: takes its reports, and a `Failed` when it ends without having been told to.
        """
        self.slot, self._epoch, self._log_path, self._send = slot, epoch, log, send
        self.pid = 0
        self._transport: asyncio.SubprocessTransport | None = None
        self._lines = Lines()
        self._over = asyncio.Event()
        self._told_to_end = self._drained = self._said_why = False

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._transport is not None and self._transport.get_returncode() is None

    async def spawn(self, folder: Path, command: Sequence[str] = WORKER) -> None:
        """Start the process with `folder` as its working directory.

        Raises:
            OSError: it cannot be started.
        """
        loop = asyncio.get_running_loop()
        with self._log_path.open("ab") as log:
            self._transport, _ = await loop.subprocess_exec(
                lambda: self, *command, stderr=log, cwd=folder, start_new_session=True
            )
        self.pid = self._transport.get_pid()

    def tell(self, message: Message) -> None:
        """Send a command; a worker that is gone or about to be gets none."""
        if self.alive and not self._told_to_end:
            pipe = cast("asyncio.SubprocessTransport", self._transport).get_pipe_transport(0)
            cast("asyncio.WriteTransport", pipe).write(protocol.encode(message))

    async def end(self) -> None:
        """End the process and reap it; what is left of its group is killed."""
        if self._transport is None:
            return
        self.tell(Finish(epoch=self._epoch))
        self._told_to_end = True
        pipe = self._transport.get_pipe_transport(0)
        if pipe is not None:
            pipe.close()
        for patience_s, number in ((FINISH_S, signal.SIGTERM), (TERMINATE_S, signal.SIGKILL), (KILL_S, None)):
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._over.wait()
                break
            if number is not None:
                _log.warning("worker %s (process %s) gets %s", self.slot, self.pid, number.name)
                self._signal(number)
        self._transport.close()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Pass on reports; nonsense ends the worker."""
        try:
            for line in self._lines.feed(data):
                self._heard(protocol.decode_report(line))
        except RunError as fault:
            self._fail(str(fault))
            self._signal(signal.SIGKILL)

    def process_exited(self) -> None:
        """Wait for the last words, then say how it ended."""
        asyncio.get_running_loop().call_later(_LAST_WORDS_S, self._conclude)

    def connection_lost(self, exc: Exception | None) -> None:
        """The process has ended and its pipes are closed."""
        self._conclude()

    def _heard(self, report: protocol.Report) -> None:
        if not isinstance(report, WorkerReport):
            raise RunError(f"a worker has no business to send {type(report).__name__}")
        if report.epoch < self._epoch:
            return
        if (report.epoch, report.slot) != (self._epoch, self.slot):
            raise RunError(f"the worker speaks of epoch {report.epoch}, slot {report.slot}")
        if isinstance(report, Failed):
            self._fail(report.reason)
        else:
            self._drained |= isinstance(report, Drained)
            self._send(report)

    def _conclude(self) -> None:
        if self._over.is_set():
            return
        self._over.set()
        # Helpers that an operator started may have stayed behind. Later the group's number could be a stranger's.
        self._signal(signal.SIGKILL)
        status = cast("asyncio.SubprocessTransport", self._transport).get_returncode()
        if status or not self._told_to_end:
            self._fail(f"worker {self.slot} (process {self.pid}) {ending(status)}{self._last_line()}")

    def _fail(self, reason: str) -> None:
        # Peers that end at different moments lose their links: after `Finish` that is no news, unless the
        # answer was complete and something went wrong with closing it.
        if self._said_why or (self._told_to_end and not self._drained):
            _log.info("worker %s: %s", self.slot, reason)
            return
        self._said_why = True
        self._send(Failed(epoch=self._epoch, slot=self.slot, reason=reason, log=str(self._log_path)))

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
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


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
