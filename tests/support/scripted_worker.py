"""Worker without executors for an agent: it answers like a worker, and fails on request.

Requests are `Mark` messages of kind `<slot> <action>`, and parameters of a start, `{"<epoch>": {"<slot>":
"<action>"}}`, which are performed before the answer.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

from agents import protocol
from agents.protocol import (
    Connect,
    Connected,
    Cut,
    Failed,
    Finish,
    Grow,
    Listening,
    Mark,
    Message,
    Passed,
    Prepare,
    Ready,
    Slot,
    Start,
    Stored,
    Welcome,
)
from agents.worker.process.fork_server import run_fork_server


def _report(message: Message) -> None:
    os.write(1, protocol.encode(message))


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _act(action: str, slot: int, epoch: int) -> None:
    match action:
        case "die":
            _die()
        case "exit":
            os._exit(7)
        case "leave":
            sys.exit(0)
        case "fail":
            _report(Failed(epoch=epoch, slot=slot, reason="out of luck"))
            sys.exit(1)
        case "fail late":
            while not Path("fail").exists():
                time.sleep(0.01)
            _act("fail", slot, epoch)
        case "leave a helper, speak and die":
            if os.fork() == 0:
                time.sleep(600)
            for barrier in range(1, 2001):
                _report(Stored(epoch=epoch, slot=slot, barrier=barrier, executor="e[0]", file="f", nbytes=1))
            _die()
        case "stay":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
        case _:
            raise AssertionError(action)


def main() -> None:
    """Handle commands until `Finish` or end of input."""
    slot, epoch, place = -1, 0, Slot("", -1)
    for line in sys.stdin.buffer:
        command = protocol.decode_command(line)
        print(type(command).__name__, epoch, file=sys.stderr, flush=True)
        match command:
            case Welcome():
                slot, place = command.slot, Slot(command.node, command.slot)
            case Start(spec=spec) | Grow(spec=spec):
                assert place in spec.workers
                epoch = spec.epoch
                action = spec.params.get(str(epoch), {}).get(str(slot))
                if action:
                    _act(action, slot, epoch)
                _report(Listening(epoch=epoch, slot=slot, pid=os.getpid(), port=1))
            case Connect():
                _report(Connected(epoch=epoch, slot=slot))
            case Prepare(barrier=barrier):
                _report(Ready(epoch=epoch, slot=slot, barrier=barrier, tick=slot))
            case Cut(barrier=barrier):
                _report(Passed(epoch=epoch, slot=slot, barrier=barrier))
            case Mark(kind=kind) if kind.startswith(f"{slot} "):
                _act(kind.removeprefix(f"{slot} "), slot, epoch)
            case Finish():
                return


if __name__ == "__main__":
    run_fork_server()
    main()
