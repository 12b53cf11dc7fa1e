"""Attacks on data ports: `python attacker.py SPEC`, with SPEC in JSON; prints the number of attempts per kind as JSON.

`ports`: (address, port, worker number) of each target. `seconds`: duration. `seed`. `key`, `run` and `now` (the current
epoch) enable attacks with recorded handshakes; without them there are none.
"""

import json
import random
import socket
import struct
import sys
import time
from collections import Counter
from contextlib import suppress

from agents.worker.wire import frame
from agents.worker.wire.handshake import MAGIC, Acceptor, Connector

RECORDED = ("older", "replayed", "proof of another")
KINDS = (
    "random",
    "http",
    "half a magic",
    "half a hello",
    "idle",
    "reset",
    "scan",
    "lengths",
    "guessed",
    "burst",
    *RECORDED,
)
MAX_IDLE = 500
MAX_CONNECTIONS = 2_000


class Attacker:
    """Random attacks, one after the other, with a bounded number of connections."""

    def __init__(self, spec: dict) -> None:
        self.spec = spec
        self.random = random.Random(spec["seed"])  # noqa: S311 - it must be repeatable
        self.attempts: Counter[str] = Counter()
        self.idle: list[socket.socket] = []
        self.kinds = [*KINDS] if "key" in spec else [kind for kind in KINDS if kind not in RECORDED]

    def attack(self, until: float) -> None:
        while time.monotonic() < until and self.attempts.total() < MAX_CONNECTIONS:
            kind = self.random.choice(self.kinds)
            address, port, worker = self.random.choice(self.spec["ports"])
            for _ in range(40 if kind in ("burst", "idle") else 1):
                # Ports close when an epoch ends; errors are expected.
                with suppress(OSError):
                    self.once(kind, (address, port), worker)
        for sock in self.idle:
            sock.close()

    def once(self, kind: str, target: tuple[str, int], worker: int) -> None:
        sock = socket.create_connection(target, 2)
        self.attempts[kind] += 1
        sock.settimeout(2)
        opening = self.opening(kind, worker)
        if opening:
            sock.sendall(opening)
        if kind in ("replayed", "proof of another"):
            # Without the key the reply is useless.
            sock.recv(64)
            sock.sendall(self.proof(worker))
        if kind in ("idle", "half a hello", "guessed"):
            self.idle.append(sock)
            if len(self.idle) > MAX_IDLE:
                self.idle.pop(0).close()
            return
        if kind == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()

    def opening(self, kind: str, worker: int) -> bytes:
        number = self.random.randrange(64)
        match kind:
            case "random" | "burst":
                return self.random.randbytes(self.random.randrange(200))
            case "http":
                return b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
            case "half a magic":
                return MAGIC[:2]
            case "half a hello":
                return Connector(b"", "", 1, number, worker).hello()[:20]
            case "lengths":
                header = frame.HEADER.pack(frame.DATA, 0, 0, 1, 0, 1, 2**32 - 1, 2**32 - 1)
                return self.random.choice([header, Connector(b"", "", 1, number, worker).hello() + header * 9])
            case "guessed":
                # Correct in every field that can be guessed.
                return Connector(b"", "", self.spec.get("now", 1), number, worker).hello()
            case "older":
                return self.recorded(worker, self.spec["now"] - 1)[0]
            case "replayed" | "proof of another":
                return self.recorded(worker, self.spec["now"])[0]
        return b""

    def recorded(self, worker: int, epoch: int) -> tuple[bytes, bytes]:
        """Return both messages of the connector in a valid handshake of an epoch, as recorded from the wire."""
        key, run = bytes.fromhex(self.spec["key"]), self.spec["run"]
        peer = (worker + 1) % 3
        connector, acceptor = Connector(key, run, epoch, peer, worker), Acceptor(key, run, epoch, worker)
        hello = connector.hello()
        return hello, connector.receive(acceptor.receive(hello))

    def proof(self, worker: int) -> bytes:
        return self.recorded(worker, self.spec["now"])[1]


def main() -> None:
    attacker = Attacker(json.loads(sys.argv[1]))
    attacker.attack(time.monotonic() + attacker.spec["seconds"])
    print(json.dumps(attacker.attempts))


if __name__ == "__main__":
    main()
