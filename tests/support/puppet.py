"""A worker without executors, to be started by an agent: it answers like a worker, and misbehaves when it is told to.

It is told by `Mark`, whose kind is then `<slot> <deed>`, and by the parameters of a start: `{"<epoch>": {"<slot>":
"<deed>"}}`, done before it answers.
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


def _say(message: Message) -> None:
    os.write(1, protocol.encode(message))


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _do(deed: str, slot: int, epoch: int) -> None:
    match deed:
        case "die":
            _die()
        case "exit":
            os._exit(7)
        case "leave":
            sys.exit(0)
        case "fail":
            _say(Failed(epoch=epoch, slot=slot, reason="out of luck"))
            sys.exit(1)
        case "fail late":
            while not Path("fail").exists():
                time.sleep(0.01)
            _do("fail", slot, epoch)
        case "leave a helper, speak and die":
            if os.fork() == 0:
                time.sleep(600)
            for barrier in range(1, 2001):
                _say(Stored(epoch=epoch, slot=slot, barrier=barrier, executor="e[0]", file="f", nbytes=1))
            _die()
        case "stay":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
        case _:
            raise AssertionError(deed)


def main() -> None:
    """Obey until `Finish`, or the end of the input."""
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
                deed = spec.params.get(str(epoch), {}).get(str(slot))
                if deed:
                    _do(deed, slot, epoch)
                _say(Listening(epoch=epoch, slot=slot, pid=os.getpid(), port=1))
            case Connect():
                _say(Connected(epoch=epoch, slot=slot))
            case Prepare(barrier=barrier):
                _say(Ready(epoch=epoch, slot=slot, barrier=barrier, tick=slot))
            case Cut(barrier=barrier):
                _say(Passed(epoch=epoch, slot=slot, barrier=barrier))
            case Mark(kind=kind) if kind.startswith(f"{slot} "):
                _do(kind.removeprefix(f"{slot} "), slot, epoch)
            case Finish():
                return


if __name__ == "__main__":
    run_fork_server()
    main()
