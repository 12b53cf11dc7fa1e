"""NTP server for guests, with this host's clock (RFC 5905)."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

HOST = "10.0.2.2"
"""This host, as guests see it."""

SINCE_1900_S = 2_208_988_800
SERVER, VERSION = 4, 4
STRATUM, POLL, PRECISION = 1, 6, -20
HEAD = struct.pack("!BBbbII4s", VERSION << 3 | SERVER, STRATUM, POLL, PRECISION, 0, 1, b"HOST")


def _stamp() -> bytes:
    """Return the time in NTP format: units of 2**-32 s since 1900."""
    return struct.pack("!Q", (time.time_ns() + SINCE_1900_S * 10**9 << 32) // 10**9 & (1 << 64) - 1)


def _serve(socket_: socket.socket) -> None:
    while True:
        request, sender = socket_.recvfrom(1024)
        if not request:
            return
        received = _stamp()
        originate = request[40:48]
        socket_.sendto(HEAD + received + originate + received + _stamp(), sender)


@contextmanager
def time_server() -> Iterator[str]:
    """Run a server within the block; yield its address and port in chrony's format."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        thread = threading.Thread(target=_serve, args=(listening,))
        thread.start()
        try:
            yield f"{HOST} port {port}"
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ending:
                ending.sendto(b"", ("127.0.0.1", port))
            thread.join()
