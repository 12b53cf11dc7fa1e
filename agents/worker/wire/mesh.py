"""From a listening socket to one link per peer: connecting, accepting, and turning strangers away.

Of two workers the one with the lower number connects, when it is told that they need each other; the other accepts at
any time whoever proves to be a worker of this run and epoch. A connection becomes a link when its handshake is done
within 5 s; anything else is closed before a frame is parsed, and counted with its reason. When many connect at once,
who has not even said hello makes room first; a peer that had to make room connects again. A peer that cannot be
reached, or turns out to be none, is lost.
"""

import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable

from agents.worker.wire.handshake import TIMEOUT_S, Acceptor, Connector, HandshakeError
from agents.worker.wire.link import tune
from inventory.errors import RunError

_BACKLOG = 256
_MOST_STRANGERS = 128
"""Handshakes under way at once, beyond one per peer."""

_MOST_ACCEPTED = 32
"""Connections accepted in one pass of the loop, so that a flood does not stop the executors."""

_MOST_HANDSHAKE_BYTES = 4096

_MOST_TRIES = 8
"""Connections to a peer that are closed by it before it is lost."""


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
        on_link: Callable[[int, socket.socket, bytes], None],
        on_lost: Callable[[int, str], None],
    ) -> None:
        """Listen on `address`, port chosen by the system.

        `on_link` gets a peer's number, its socket and the bytes that came after the handshake; `on_lost` the number of
        one that cannot be linked to, and why.

        Raises:
            RunError: the address cannot be bound.
        """
        self._selector = selector
        self._address, self._key, self._run = address, key, run
        self._epoch, self._worker = epoch, worker
        self._linked: set[int] = set()
        self._wanted: set[int] = set()
        self._addresses: dict[int, tuple[str, int]] = {}
        self._tries: Counter[int] = Counter()
        self._on_link, self._on_lost = on_link, on_lost
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
        """Whether every wanted peer has a link."""
        return self._wanted <= self._linked

    def connect(self, addresses: dict[int, tuple[str, int]]) -> None:
        """Want links to these peers; `addresses` are by worker number."""
        connecting = {side.peer for side, _ in self._pending.values() if isinstance(side, Connector)}
        self._wanted |= addresses.keys()
        for peer in sorted(addresses.keys() - self._linked - connecting):
            if peer > self._worker:
                self._addresses[peer] = addresses[peer]
                self._tries[peer] = 0
                self._try(peer)

    def _try(self, peer: int) -> None:
        self._tries[peer] += 1
        side = Connector(self._key, self._run, self._epoch, self._worker, peer)
        host, port = self._addresses[peer]
        try:
            # The source is bound too, so that on one host every peer appears under its node's address.
            sock = socket.create_connection((host, port), TIMEOUT_S, source_address=(self._address, 0))
            tune(sock)
            sock.send(side.hello())
        except OSError as fault:
            self._on_lost(peer, f"{host}:{port} cannot be reached: {fault}")
        else:
            self._wait_for(sock, side)

    def expire(self, now_s: float) -> None:
        """Turn away whoever has not finished the handshake in time."""
        for sock, (_, until) in list(self._pending.items()):
            if now_s > until:
                self._refuse(sock, "time-out")

    def close(self) -> None:
        """Close the listener and all connections that are not links."""
        for sock in list(self._pending):
            if isinstance(self._forget(sock), Acceptor):
                self.refused["no handshake by the end"] += 1
            sock.close()
        self._selector.unregister(self._listener)
        self._listener.close()

    def _accept(self, _mask: int) -> None:
        for _ in range(_MOST_ACCEPTED):
            try:
                sock, _ = self._listener.accept()
                tune(sock)
            except BlockingIOError:
                return
            except OSError:
                # Out of file descriptors, or the peer was gone before we came: its side will know.
                self.refused["accept failed"] += 1
                return
            if len(self._pending) >= len(self._wanted) + _MOST_STRANGERS:
                self._make_room()
            side = Acceptor(self._key, self._run, self._epoch, self._worker)
            self._wait_for(sock, side)
            # A peer's hello comes right behind its connection; who has said it is not the first to make room.
            self._shake(sock, side)

    def _make_room(self) -> None:
        accepted = [sock for sock, (side, _) in self._pending.items() if isinstance(side, Acceptor)]
        silent = [sock for sock in accepted if self._pending[sock][0].peer < 0]
        self._refuse((silent or accepted)[0], "too many at once")

    def _wait_for(self, sock: socket.socket, side: Connector | Acceptor) -> None:
        self._pending[sock] = (side, time.monotonic() + TIMEOUT_S)
        self._selector.register(sock, selectors.EVENT_READ, lambda _mask: self._shake(sock, side))

    def _shake(self, sock: socket.socket, side: Connector | Acceptor) -> None:
        if sock not in self._pending:
            # It was turned away after the selector had seen its bytes.
            return
        try:
            received = sock.recv(_MOST_HANDSHAKE_BYTES)
            if not received:
                self._part(sock, "closed during the handshake")
                return
            answer = side.receive(received)
            if answer:
                sock.send(answer)
        except BlockingIOError:
            return
        except OSError as fault:
            self._part(sock, str(fault))
            return
        except HandshakeError as fault:
            self._refuse(sock, str(fault))
            return
        if not side.done:
            return
        if side.peer in self._linked:
            self._refuse(sock, "a second link of the same worker")
            return
        self._forget(sock)
        self._linked.add(side.peer)
        self._on_link(side.peer, sock, side.rest)

    def _part(self, sock: socket.socket, reason: str) -> None:
        """The other side has closed; a peer may have had to make room among strangers, and is tried again."""
        side = self._pending[sock][0]
        if isinstance(side, Connector) and self._tries[side.peer] < _MOST_TRIES:
            self._forget(sock)
            sock.close()
            self._try(side.peer)
        else:
            self._refuse(sock, reason)

    def _refuse(self, sock: socket.socket, reason: str) -> None:
        side = self._forget(sock)
        sock.close()
        if isinstance(side, Connector):
            self._on_lost(side.peer, f"it is not who it should be: {reason}")
        else:
            self.refused[reason] += 1

    def _forget(self, sock: socket.socket) -> Connector | Acceptor:
        side, _ = self._pending.pop(sock)
        self._selector.unregister(sock)
        return side
