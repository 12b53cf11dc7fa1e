"""Both sides of a connection prove that they know the run's key, before any frame is parsed.

    connector -> acceptor   "MLRC", version, epoch, connecting worker, accepting worker, nonce
    acceptor -> connector   nonce, HMAC-SHA256 over role, run, epoch, both workers and both nonces
    connector -> acceptor   the same HMAC with the other role

A worker is named by its number, the position of its place among all places of the run. The role in the HMAC keeps one
side's proof from being played back as the other's; the nonces keep an old one from being played back at all. No I/O
happens here: both classes take bytes and give bytes.
"""

import hmac
import secrets
from struct import Struct

from inventory.errors import RunError

MAGIC = b"MLRC"
VERSION = 1
TIMEOUT_S = 5.0

_HELLO = Struct("<4sBIII32s")
_NONCE = 32
_PROOF = 32


class HandshakeError(RunError):
    """The other side is not a worker of this run and epoch.

    Refusals are counted by their text, so that it never holds what the other side chose.
    """


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
        """Bytes received beyond the handshake; they belong to the first frames."""
        return bytes(self._buffer)


class Connector(_Side):
    """The side that opened the connection."""

    def __init__(self, key: bytes, run: str, epoch: int, me: int, peer: int) -> None:
        super().__init__(key, run, epoch, me)
        self.peer = peer
        self._nonce = secrets.token_bytes(_NONCE)

    def hello(self) -> bytes:
        """What to send first."""
        return _HELLO.pack(MAGIC, VERSION, self._epoch, self._me, self.peer, self._nonce)

    def receive(self, received: bytes) -> bytes:
        """Take bytes, return bytes to send; `done` tells when the other side has proved itself.

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
    """The side that was connected to; `peer` is known once `done`."""

    def __init__(self, key: bytes, run: str, epoch: int, me: int) -> None:
        super().__init__(key, run, epoch, me)
        self._nonces = b""
        self.peer = -1

    def receive(self, received: bytes) -> bytes:
        """Take bytes, return bytes to send; `done` tells when the other side has proved itself.

        Raises:
            HandshakeError: not our protocol, another epoch, another worker, or a wrong proof.
        """
        self._buffer += received
        if self._nonces:
            return self._check()
        if not MAGIC.startswith(bytes(self._buffer[: len(MAGIC)])):
            raise HandshakeError("not this protocol")
        taken = self._take(_HELLO.size)
        if taken is None:
            return b""
        _, version, epoch, connector, acceptor, nonce = _HELLO.unpack(taken)
        if version != VERSION:
            raise HandshakeError("another version of the data protocol")
        if epoch != self._epoch:
            raise HandshakeError("a worker of another epoch")
        if acceptor != self._me or connector == self._me:
            raise HandshakeError("meant for another worker")
        self.peer = connector
        mine = secrets.token_bytes(_NONCE)
        self._nonces = nonce + mine
        return mine + self._proof(b"acceptor", connector, self._me, self._nonces) + self._check()

    def _check(self) -> bytes:
        proof = self._take(_PROOF)
        if proof is not None:
            if not hmac.compare_digest(proof, self._proof(b"connector", self.peer, self._me, self._nonces)):
                raise HandshakeError("the connecting side does not know the run's key")
            self.done = True
        return b""
