"""The links of a worker, one per peer: connecting, accepting, rejecting unknown clients, and the bytes of a connection.

Of two workers the one with the lower number connects, once they share a channel. The other accepts, at any time, every
client that authenticates as a worker of this run and epoch. A connection becomes a link when its handshake completes
within 5 s; any other is closed before a frame is parsed, and counted by reason. When too many connect at once, those
that have not sent a hello are closed first; a peer whose connection was closed connects again. A peer that cannot be
reached, or does not authenticate, is reported as lost.

A link carries frames in order. Its writes never block; the credits of its channels bound the bytes that it buffers. It
does not reconnect: when it breaks, this epoch ends.
"""

import selectors
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import islice

from agents.worker.wire.frame import STATE_BYTES, Frame, FrameReader
from agents.worker.wire.handshake import TIMEOUT_S, Acceptor, Connector, HandshakeError, WorkerIdentity
from inventory.errors import RunError

_MAX_PIECES = 512
_MAX_RECEIVED_AT_ONCE = 2 * STATE_BYTES
"""A frame of state and what is around it arrive in one pass, which would otherwise wait for the turns of executors."""

_SOCKET_BUFFER = 1024 * 1024

_BACKLOG = 256
_MAX_UNAUTHENTICATED = 128
"""Handshakes in progress at once, in addition to one per peer."""

_MAX_ACCEPTED = 32
"""Connections accepted in one pass of the event loop, so that a flood does not stop the executors."""

_MAX_HANDSHAKE_BYTES = 4096

_MAX_TRIES = 8
"""Attempts to connect to a peer that closes the connection, before it counts as lost."""


class LinkError(RunError):
    """The other worker is gone."""


class PeerLink:
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
        """True if bytes are waiting for the socket."""
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
            # Reading makes room, into which the rest of a large frame often follows at once.
            if received < len(space) and not self._reader.is_amid_large:
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


class Mesh:
    """All connections of one worker; driven by the event loop's selector.

    Attributes:
        rejected: number of rejected connections by reason.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        address: str,
        identity: WorkerIdentity,
        on_link: Callable[[int, socket.socket, bytes], None],
        on_lost: Callable[[int, str], None],
    ) -> None:
        """Listen on `address`, with a port chosen by the system.

        Args:
            selector: the event loop's.
            address: data address of this node.
            identity: of this worker, for handshakes.
            on_link: called with a peer's number, its socket and the bytes received after the handshake.
            on_lost: called with the number of a peer that cannot be linked, and the reason.

        Raises:
            RunError: the address cannot be bound.
        """
        self._selector = selector
        self._address, self._identity = address, identity
        self._linked: set[int] = set()
        self._wanted: set[int] = set()
        self._addresses: dict[int, tuple[str, int]] = {}
        self._tries: Counter[int] = Counter()
        self._on_link, self._on_lost = on_link, on_lost
        self._pending: dict[socket.socket, tuple[Connector | Acceptor, float]] = {}
        self.rejected: Counter[str] = Counter()
        try:
            self._listener = socket.create_server((address, 0), backlog=_BACKLOG)
        except OSError as fault:
            raise RunError(f"the data address {address} cannot be bound: {fault.strerror}") from None
        self._listener.setblocking(False)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    @property
    def port(self) -> int:
        """The port that peers connect to."""
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def complete(self) -> bool:
        """True if every wanted peer has a link."""
        return self._wanted <= self._linked

    def connect(self, addresses: dict[int, tuple[str, int]]) -> None:
        """Request links to these peers; `addresses` are by worker number."""
        connecting = {side.peer for side, _ in self._pending.values() if isinstance(side, Connector)}
        self._wanted |= addresses.keys()
        for peer in sorted(addresses.keys() - self._linked - connecting):
            if peer > self._identity.number:
                self._addresses[peer] = addresses[peer]
                self._tries[peer] = 0
                self._try(peer)

    def _try(self, peer: int) -> None:
        self._tries[peer] += 1
        side = Connector(*self._identity, peer)
        host, port = self._addresses[peer]
        try:
            # The source address is bound too, so that on one host every peer connects from its node's address.
            sock = socket.create_connection((host, port), TIMEOUT_S, source_address=(self._address, 0))
            tune(sock)
            sock.send(side.hello())
        except OSError as fault:
            self._on_lost(peer, f"{host}:{port} cannot be reached: {fault}")
        else:
            self._register(sock, side)

    def expire(self, now_s: float) -> None:
        """Reject connections that have not finished the handshake in time."""
        for sock, (_, until) in list(self._pending.items()):
            if now_s > until:
                self._reject(sock, "time-out")

    def close(self) -> None:
        """Close the listener and all connections that have not become links."""
        for sock in list(self._pending):
            if isinstance(self._unregister(sock), Acceptor):
                self.rejected["no handshake by the end"] += 1
            sock.close()
        self._selector.unregister(self._listener)
        self._listener.close()

    def _accept(self, _mask: int) -> None:
        for _ in range(_MAX_ACCEPTED):
            try:
                sock, _ = self._listener.accept()
                tune(sock)
            except BlockingIOError:
                return
            except OSError:
                # Out of file descriptors, or the peer has already disconnected; its side gets an error.
                self.rejected["accept failed"] += 1
                return
            if len(self._pending) >= len(self._wanted) + _MAX_UNAUTHENTICATED:
                self._make_room()
            side = Acceptor(*self._identity)
            self._register(sock, side)
            # A peer sends its hello at once; connections with a hello are not the first to be closed for room.
            self._continue_handshake(sock, side)

    def _make_room(self) -> None:
        accepted = [sock for sock, (side, _) in self._pending.items() if isinstance(side, Acceptor)]
        silent = [sock for sock in accepted if self._pending[sock][0].peer < 0]
        self._reject((silent or accepted)[0], "too many at once")

    def _register(self, sock: socket.socket, side: Connector | Acceptor) -> None:
        self._pending[sock] = (side, time.monotonic() + TIMEOUT_S)
        self._selector.register(sock, selectors.EVENT_READ, lambda _mask: self._continue_handshake(sock, side))

    def _continue_handshake(self, sock: socket.socket, side: Connector | Acceptor) -> None:
        if sock not in self._pending:
            # It was rejected after the selector had reported its bytes.
            return
        try:
            received = sock.recv(_MAX_HANDSHAKE_BYTES)
            if not received:
                self._on_closed_by_peer(sock, "closed during the handshake")
                return
            answer = side.receive(received)
            if answer:
                sock.send(answer)
        except BlockingIOError:
            return
        except OSError as fault:
            self._on_closed_by_peer(sock, str(fault))
            return
        except HandshakeError as fault:
            self._reject(sock, str(fault))
            return
        if not side.done:
            return
        if side.peer in self._linked:
            self._reject(sock, "a second link of the same worker")
            return
        self._unregister(sock)
        self._linked.add(side.peer)
        self._on_link(side.peer, sock, side.rest)

    def _on_closed_by_peer(self, sock: socket.socket, reason: str) -> None:
        """Connect again to a peer that has closed, possibly to make room among unknown clients."""
        side = self._pending[sock][0]
        if isinstance(side, Connector) and self._tries[side.peer] < _MAX_TRIES:
            self._unregister(sock)
            sock.close()
            self._try(side.peer)
        else:
            self._reject(sock, reason)

    def _reject(self, sock: socket.socket, reason: str) -> None:
        side = self._unregister(sock)
        sock.close()
        if isinstance(side, Connector):
            self._on_lost(side.peer, f"it is not who it should be: {reason}")
        else:
            self.rejected[reason] += 1

    def _unregister(self, sock: socket.socket) -> Connector | Acceptor:
        side, _ = self._pending.pop(sock)
        self._selector.unregister(sock)
        return side
