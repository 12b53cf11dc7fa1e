"""`python -P -m agents.worker`: a fork server of worker processes, each controlled over standard input and output."""

import gc
import os
import selectors
import sys
import traceback

from agents import protocol
from agents.arrow_import import skip_pandas_import
from agents.protocol import Command, Grow, Message, Start, Welcome
from agents.worker.process.event_loop import Selector
from agents.worker.process.fork_server import run_fork_server
from agents.worker.process.worker import Worker, failure_report, tune_process
from inventory.errors import MillraceError, RunError
from inventory.foreign import printable_lines

_READ_BYTES = 64 * 1024


class ControlPipes:
    """The pipes to the agent: receives commands, sends reports."""

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._buffer = bytearray()

    def send(self, message: Message) -> None:
        """Send one report."""
        line = memoryview(protocol.encode(message))
        while line:
            line = line[os.write(self._target, line) :]

    def receive(self) -> list[Command]:
        """Return the commands that have arrived; wait for the first bytes.

        Raises:
            EOFError: the agent is gone.
            RunError: the bytes do not follow the protocol.
        """
        received = os.read(self._source, _READ_BYTES)
        if not received:
            raise EOFError
        self._buffer += received
        if len(self._buffer) > protocol.MAX_LINE:
            raise RunError(f"a line of more than {protocol.MAX_LINE} bytes")
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = rest
        return [protocol.decode_command(bytes(line)) for line in lines if line]


def main() -> int:
    """Run one worker until it is finished; return the exit status."""
    tune_process()
    control = ControlPipes(0, os.dup(1))
    # Operators' output goes to the log, never into the protocol.
    os.dup2(2, 1)
    epochs = _Epochs(control)
    try:
        epochs.run()
    except EOFError:
        return 0
    except MillraceError as fault:
        control.send(failure_report(epochs.epoch, epochs.slot, fault))
        return 1
    except Exception as fault:  # noqa: BLE001 - the log gets the traceback, the controller one line
        sys.stderr.write(f"{printable_lines(traceback.format_exc())}\n")
        control.send(failure_report(epochs.epoch, epochs.slot, RunError(f"{type(fault).__name__}: {fault}")))
        return 1
    return 0


class _Epochs:
    """All epochs of one worker process, from its first command to its last."""

    def __init__(self, control: ControlPipes) -> None:
        self._control = control
        self._commands: list[Command] = []
        self.epoch, self.slot = 0, -1

    def run(self) -> None:
        """Receive `Welcome` and the first `Start`, then work until `Finish`.

        Raises:
            EOFError: the agent is gone.
            MillraceError: the run, or this worker of it, has failed.
        """
        while len(self._commands) < 2:
            self._receive()
        welcome, start = self._commands.pop(0), self._commands.pop(0)
        if not isinstance(welcome, Welcome) or not isinstance(start, Start | Grow):
            raise RunError("a worker's first commands must be Welcome, then Start or Grow")
        if welcome.version != protocol.VERSION:
            raise RunError(f"control protocol {welcome.version}, this is {protocol.VERSION}")
        self.slot = welcome.slot
        with Selector() as selector:
            selector.register(0, selectors.EVENT_READ, lambda _mask: self._receive())
            following: Start | Grow | None = start
            while following is not None:
                self.epoch = following.epoch
                following = self._run_epoch(Worker(welcome, following, selector, self._control.send))

    def _receive(self) -> None:
        self._commands += self._control.receive()

    def _run_epoch(self, worker: Worker) -> Start | None:
        """Work for one epoch; return the command that starts the next one, or None after `Finish`."""
        try:
            while not worker.loop.stopped:
                while self._commands:
                    command = self._commands.pop(0)
                    if isinstance(command, Start) and command.epoch > self.epoch:
                        return command
                    worker.handle_command(command)
                worker.loop.run_pass()
        finally:
            worker.close()
            # Objects of this epoch form reference cycles. Older ones are frozen, shared with the server, and skipped.
            gc.collect()
        return None


if __name__ == "__main__":
    skip_pandas_import()
    run_fork_server()
    sys.exit(main())
