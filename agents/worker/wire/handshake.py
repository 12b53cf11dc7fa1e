"""Mutual authentication of two workers with the run's key, before any frame is parsed.

    connector -> acceptor   "MLRC", version, epoch, connecting worker, accepting worker, nonce, proof over the nonce
    acceptor -> connector   nonce, proof over both nonces
    connector -> acceptor   proof over both nonces

A proof is HMAC-SHA256 with the key over role, run, epoch, both workers and nonces. A worker is identified by its
number, its position in the run's list of workers. The role prevents the replay of one proof as another; the two nonces
prevent the replay of an earlier handshake. The first proof alone can be replayed, but opens no connection. It lets the
acceptor recognise, from the first message, a worker among clients that only know the protocol. This module does no
I/O: both classes take and return bytes.
"""

import hmac
import secrets
from struct import Struct
from typing import NamedTuple

from inventory.errors import RunError

MAGIC = b"MLRC"
VERSION = 3
TIMEOUT_S = 5.0

_HELLO = Struct("<4sBIII32s")
_NONCE = 32
_PROOF = 32
_NO_KEY = "the connecting side does not know the run's key"


class HandshakeError(RunError):
    """The other side is not a worker of this run and epoch.

    Rejections are counted by message, so a message contains nothing that the other side sent.
    """


class WorkerIdentity(NamedTuple):
    """Identity that a worker proves in handshakes: it has the run's key, and its number in an epoch of that run."""

    key: bytes
    run: str
    epoch: int
    number: int


class _Side:
    def __init__(self, key: bytes, run: str, epoch: int, me: int) -> None:
        self._key, self._run, self._epoch, self._me = key, run.encode(), epoch, me
        self._buffer = bytearray()
        self.done = False

    def _proof(self, role: bytes, connector: int, acceptor: int, nonces: bytes) -> bytes:
        text = b"|".join([role, self._run, f"{self._epoch}|{connector}|{acceptor}".encode(), nonces])
        return hmac.digest(self._key, text, "sha256")

    def _take(self, size: int) -> bytes | None:
        if len(self._buffer) < size:
            return None
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    @property
    def rest(self) -> bytes:
        """Bytes received after the handshake; they belong to the first frames."""
        return bytes(self._buffer)


class Connector(_Side):
    """The side that opened the connection."""

    def __init__(self, key: bytes, run: str, epoch: int, me: int, peer: int) -> None:
        super().__init__(key, run, epoch, me)
        self.peer = peer
        self._nonce = secrets.token_bytes(_NONCE)

    def hello(self) -> bytes:
        """Return the first message."""
        fields = _HELLO.pack(MAGIC, VERSION, self._epoch, self._me, self.peer, self._nonce)
        return fields + self._proof(b"hello", self._me, self.peer, self._nonce)

    def receive(self, received: bytes) -> bytes:
        """Take bytes, return bytes to send; `done` is set once the other side is authenticated.

        Raises:
            HandshakeError: the proof is wrong.
        """
        self._buffer += received
        taken = self._take(_NONCE + _PROOF)
        if taken is None:
            return b""
        nonces = self._nonce + taken[:_NONCE]
        if not hmac.compare_digest(taken[_NONCE:], self._proof(b"acceptor", self._me, self.peer, nonces)):
            raise HandshakeError("the accepting side does not know the run's key")
        self.done = True
        return self._proof(b"connector", self._me, self.peer, nonces)


class Acceptor(_Side):
    """The side that accepted the connection; `peer` is set by a valid hello, and authenticated when `done`."""

    def __init__(self, key: bytes, run: str, epoch: int, me: int) -> None:
        super().__init__(key, run, epoch, me)
        self._nonces = b""
        self.peer = -1

    def receive(self, received: bytes) -> bytes:
        """Take bytes, return bytes to send; `done` is set once the other side is authenticated.

        Raises:
            HandshakeError: not our protocol, another epoch, another worker, or a wrong proof.
        """
        self._buffer += received
        if self._nonces:
            return self._check()
        if not MAGIC.startswith(bytes(self._buffer[: len(MAGIC)])):
            raise HandshakeError("not this protocol")
        taken = self._take(_HELLO.size + _PROOF)
        if taken is None:
            return b""
        _, version, epoch, connector, acceptor, nonce = _HELLO.unpack_from(taken)
        if version != VERSION:
            raise HandshakeError("another version of the data protocol")
        if epoch != self._epoch:
            raise HandshakeError("a worker of another epoch")
        if acceptor != self._me or connector == self._me:
            raise HandshakeError("meant for another worker")
        if not hmac.compare_digest(taken[_HELLO.size :], self._proof(b"hello", connector, self._me, nonce)):
            raise HandshakeError(_NO_KEY)
        self.peer = connector
        mine = secrets.token_bytes(_NONCE)
        self._nonces = nonce + mine
        return mine + self._proof(b"acceptor", connector, self._me, self._nonces) + self._check()

    def _check(self) -> bytes:
        proof = self._take(_PROOF)
        if proof is not None:
            if not hmac.compare_digest(proof, self._proof(b"connector", self.peer, self._me, self._nonces)):
                raise HandshakeError(_NO_KEY)
            self.done = True
        return b""
