"""From a listening socket to one link per peer: connecting, accepting, and turning strangers away.

Of two workers the one with the lower number connects. A connection becomes a link when its handshake is done within
5 s; anything else is closed before a frame is parsed, and counted with its reason.
"""

import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable

from agents.worker.handshake import TIMEOUT_S, Acceptor, Connector, HandshakeError
from agents.worker.link import tune
from inventory.errors import RunError

_BACKLOG = 256
_MOST_PENDING = 128
_MOST_HANDSHAKE_BYTES = 4096


class Mesh:
    """All connections of one worker; driven by the loop's selector."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        address: str,
        key: bytes,
        run: str,
        epoch: int,
        worker: int,
        peers: set[int],
        workers: int,
        on_link: Callable[[int, socket.socket, bytes], None],
    ) -> None:
        """Listen on `address`, port chosen by the system.

        `on_link` gets a peer's number, its socket and the bytes that came after the handshake.

        Raises:
            RunError: the address cannot be bound.
        """
        self._selector = selector
        self._address, self._key, self._run = address, key, run
        self._epoch, self._worker, self._workers = epoch, worker, workers
        self._missing = set(peers)
        self._on_link = on_link
        self._pending: dict[socket.socket, tuple[Connector | Acceptor, float]] = {}
        self.refused: Counter[str] = Counter()
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
        """Whether every peer has a link."""
        return not self._missing

    def connect(self, addresses: dict[int, tuple[str, int]]) -> None:
        """Open connections to the peers with higher numbers; `addresses` are by worker number.

        Raises:
            RunError: a peer's address does not answer.
        """
        for peer in sorted(self._missing):
            if peer < self._worker:
                continue
            # The source is bound too, so that on one host every peer appears under its node's address.
            try:
                sock = socket.create_connection(addresses[peer], TIMEOUT_S, source_address=(self._address, 0))
            except OSError as fault:
                host, port = addresses[peer]
                raise RunError(f"worker {peer} at {host}:{port} cannot be reached: {fault}") from None
            side = Connector(self._key, self._run, self._epoch, self._worker, peer)
            tune(sock)
            sock.send(side.hello())
            self._wait_for(sock, side)

    def expire(self, now_s: float) -> None:
        """Turn away whoever has not finished the handshake in time."""
        for sock, (_, until) in list(self._pending.items()):
            if now_s > until:
                self._refuse(sock, "time-out")

    def close(self) -> None:
        """Close the listener and all connections that are not links."""
        for sock in [*self._pending, self._listener]:
            self._selector.unregister(sock)
            sock.close()
        self._pending.clear()

    def _accept(self, _mask: int) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                # Out of file descriptors, or the peer was gone before we came: its side will know.
                self.refused["accept failed"] += 1
                return
            tune(sock)
            if len(self._pending) >= _MOST_PENDING:
                sock.close()
                self.refused["too many at once"] += 1
                continue
            self._wait_for(sock, Acceptor(self._key, self._run, self._epoch, self._worker, self._workers))

    def _wait_for(self, sock: socket.socket, side: Connector | Acceptor) -> None:
        self._pending[sock] = (side, time.monotonic() + TIMEOUT_S)
        self._selector.register(sock, selectors.EVENT_READ, lambda _mask: self._shake(sock, side))

    def _shake(self, sock: socket.socket, side: Connector | Acceptor) -> None:
        try:
            received = sock.recv(_MOST_HANDSHAKE_BYTES)
            if not received:
                raise HandshakeError("closed during the handshake")
            answer = side.receive(received)
            if answer:
                sock.send(answer)
        except BlockingIOError:
            return
        except (OSError, HandshakeError) as fault:
            self._refuse(sock, str(fault))
            return
        if not side.done:
            return
        if side.peer not in self._missing:
            self._refuse(sock, "a second link of the same worker")
            return
        self._forget(sock)
        self._missing.discard(side.peer)
        self._on_link(side.peer, sock, side.rest)

    def _refuse(self, sock: socket.socket, reason: str) -> None:
        self._forget(sock)
        sock.close()
        self.refused[reason] += 1

    def _forget(self, sock: socket.socket) -> None:
        del self._pending[sock]
        self._selector.unregister(sock)
