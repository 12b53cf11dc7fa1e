"""One authenticated connection between two workers: frames in order.

Writes never block; the credits of a link's channels bound the bytes that it buffers. A link does not reconnect: when
it breaks, this epoch ends.
"""

import socket
from collections import deque
from collections.abc import Iterator
from itertools import islice

from agents.worker.wire.frame import Frame, FrameReader
from inventory.errors import RunError

_MAX_PIECES = 512
_MAX_RECEIVED_AT_ONCE = 1024 * 1024
_SOCKET_BUFFER = 1024 * 1024


class LinkError(RunError):
    """The other worker is gone."""


class Link:
    """The link to one peer; bytes written before the connection exists are buffered."""

    def __init__(self, peer: int, epoch: int) -> None:
        self.peer = peer
        self.sent_bytes = self.received_bytes = 0
        self._sock: socket.socket | None = None
        self._reader = FrameReader(epoch)
        self._first_bytes = b""
        self._out: deque[bytes | memoryview] = deque()

    def attach(self, sock: socket.socket, first_bytes: bytes) -> None:
        """Use `sock`, whose handshake is done; `first_bytes` of the first frames have been received with it."""
        self._sock = sock
        self._first_bytes = first_bytes

    @property
    def sock(self) -> socket.socket:
        """The connection.

        Raises:
            LinkError: there is none yet.
        """
        if self._sock is None:
            raise LinkError(f"link to worker {self.peer}: not connected")
        return self._sock

    def write(self, pieces: list[bytes]) -> None:
        """Send `pieces` in order, at the next `flush`."""
        self._out += pieces

    @property
    def backlog(self) -> bool:
        """Whether bytes are waiting for the socket."""
        return bool(self._out)

    def flush(self) -> None:
        """Write as much as the socket accepts now; afterwards `backlog` is true if bytes are left.

        Raises:
            LinkError: the other side has closed.
        """
        out, sock = self._out, self.sock
        while out:
            pieces = list(islice(out, _MAX_PIECES))
            try:
                sent = sock.sendmsg(pieces)
            except BlockingIOError:
                return
            except OSError as fault:
                raise LinkError(f"link to worker {self.peer}: {fault.strerror}") from None
            self.sent_bytes += sent
            if len(pieces) == len(out) and sent == sum(map(len, pieces)):
                out.clear()
                return
            while out and sent >= len(out[0]):
                sent -= len(out.popleft())
            if sent:
                out[0] = memoryview(out[0])[sent:]

    def receive(self) -> Iterator[Frame]:
        """Yield frames that have arrived; the bytes read are limited, so that one link cannot starve the others.

        Raises:
            FrameError: the peer does not follow the protocol.
            LinkError: the other side has closed.
        """
        if self._first_bytes:
            first, self._first_bytes = self._first_bytes, b""
            yield from self._reader.feed(first)
        most = _MAX_RECEIVED_AT_ONCE
        while most > 0:
            space = self._reader.space()
            try:
                received = self.sock.recv_into(space)
            except BlockingIOError:
                return
            except OSError as fault:
                raise LinkError(f"link to worker {self.peer}: {fault.strerror}") from None
            if not received:
                raise LinkError(f"link to worker {self.peer}: closed by the other side")
            self.received_bytes += received
            yield from self._reader.received(received)
            if received < len(space):
                return
            most -= received

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._sock is not None:
            self._sock.close()


def tune(sock: socket.socket) -> None:
    """Set the options of a data connection: no delay for small frames, a send buffer for a window of large ones."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
