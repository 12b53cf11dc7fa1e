"""`python -P -m agents.worker`: a fork server of worker processes, each spoken to over standard input and output."""

import gc
import os
import selectors
import sys
import traceback

from agents import protocol
from agents.protocol import Command, Grow, Message, Start, Welcome
from agents.trace import settle_without_pandas
from agents.worker.process.fork_server import become_worker
from agents.worker.process.tuning import tune_process
from agents.worker.process.worker import Worker, failed
from agents.worker.wire.selector import Selector
from inventory.errors import MillraceError, RunError
from inventory.foreign import printable_lines

_READ_BYTES = 64 * 1024


class Control:
    """The agent's end of the pipes: commands come in, reports go out."""

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._buffer = bytearray()

    def send(self, message: Message) -> None:
        """Send one report."""
        line = memoryview(protocol.encode(message))
        while line:
            line = line[os.write(self._target, line) :]

    def receive(self) -> list[Command]:
        """Commands that have arrived; waits for the first bytes.

        Raises:
            EOFError: the agent is gone.
            RunError: it does not speak the protocol.
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
    """Live one worker's life; return the exit status."""
    tune_process()
    control = Control(0, os.dup(1))
    # Whatever an operator prints belongs into the log, never into the protocol.
    os.dup2(2, 1)
    life = _Life(control)
    try:
        life.live()
    except EOFError:
        return 0
    except MillraceError as fault:
        control.send(failed(life.epoch, life.slot, fault))
        return 1
    except Exception as fault:  # noqa: BLE001 - the log gets the traceback, the controller one line
        sys.stderr.write(f"{printable_lines(traceback.format_exc())}\n")
        control.send(failed(life.epoch, life.slot, RunError(f"{type(fault).__name__}: {fault}")))
        return 1
    return 0


class _Life:
    """The process from its first command to its last: one epoch after the other."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._commands: list[Command] = []
        self.epoch, self.slot = 0, -1

    def live(self) -> None:
        """Be told who we are, then work until told to finish.

        Raises:
            EOFError: the agent is gone.
            MillraceError: the run, or this worker of it, has failed.
        """
        while len(self._commands) < 2:
            self._hear()
        welcome, start = self._commands.pop(0), self._commands.pop(0)
        if not isinstance(welcome, Welcome) or not isinstance(start, Start | Grow):
            raise RunError("a worker is first told Welcome, then Start or Grow")
        if welcome.version != protocol.VERSION:
            raise RunError(f"control protocol {welcome.version}, this is {protocol.VERSION}")
        self.slot = welcome.slot
        with Selector() as selector:
            selector.register(0, selectors.EVENT_READ, lambda _mask: self._hear())
            again: Start | Grow | None = start
            while again is not None:
                self.epoch = again.epoch
                again = self._work(Worker(welcome, again, selector, self._control.send))

    def _hear(self) -> None:
        self._commands += self._control.receive()

    def _work(self, worker: Worker) -> Start | None:
        """Work for one epoch; return what starts the next one, or None at the end of all."""
        try:
            while not worker.loop.stopped:
                while self._commands:
                    command = self._commands.pop(0)
                    if isinstance(command, Start) and command.epoch > self.epoch:
                        return command
                    worker.obey(command)
                worker.loop.run_pass()
        finally:
            worker.close()
            # What was made for this epoch refers to itself in circles. What is older is frozen, shared and left alone.
            gc.collect()
        return None


if __name__ == "__main__":
    settle_without_pandas()
    become_worker()
    sys.exit(main())
