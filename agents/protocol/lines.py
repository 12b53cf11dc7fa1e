"""The two ends of a control channel: lines assembled from the pieces that a pipe delivers, and sent without blocking.

asyncio's pipe transport cannot be used: it treats a readable descriptor as a closed pipe, but sshd gives its commands
one socket for both directions.
"""

import asyncio
import os
from collections.abc import Callable

from agents import protocol
from agents.protocol import MAX_LINE, Message, Progress, Vitals
from inventory.errors import RunError

FLUSH_S = 1.0
"""Timeout for writing the last lines."""

_MOST_WAITING_BYTES = 1024 * 1024
"""While more bytes are waiting for the reader, `Progress` and `Vitals` are dropped in favour of other messages."""


class LineSplitter:
    """Splits a byte stream into lines; its buffer is bounded."""

    def __init__(self, longest: int = MAX_LINE) -> None:
        self._longest = longest
        self._held = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the non-empty lines that `piece` completes, without newlines.

        Raises:
            RunError: a line exceeds the maximum length.
        """
        *ended, rest = piece.split(b"\n")
        lines = []
        for part in ended:
            self._hold(part)
            if self._held:
                lines.append(bytes(self._held))
                self._held.clear()
        self._hold(rest)
        return lines

    def _hold(self, part: bytes) -> None:
        if len(self._held) + len(part) > self._longest:
            raise RunError(f"a line of more than {self._longest} bytes")
        self._held += part


class Output:
    """Sends messages without blocking on the reader."""

    def __init__(self, descriptor: int) -> None:
        """Take ownership of `descriptor`; requires a running event loop."""
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._waiting = bytearray()
        self._lost = self._closed = False
        self._empty = asyncio.Event()
        self._empty.set()
        self.on_lost: Callable[[], None] = lambda: None

    def send(self, message: Message) -> None:
        """Send a message, now or as soon as the reader accepts it."""
        if self._lost or (isinstance(message, Progress | Vitals) and len(self._waiting) > _MOST_WAITING_BYTES):
            return
        idle = not self._waiting
        self._waiting += protocol.encode(message)
        if idle:
            self._write()

    async def flush(self) -> None:
        """Wait until everything is written, at most `FLUSH_S`."""
        try:
            async with asyncio.timeout(FLUSH_S):
                await self._empty.wait()
        except TimeoutError:
            self._lose()

    def close(self) -> None:
        """Drop unwritten messages, and close the descriptor."""
        if not self._closed:
            self._closed = True
            self._lose()
            os.close(self._descriptor)

    def _write(self) -> None:
        try:
            written = os.write(self._descriptor, self._waiting)
        except BlockingIOError:
            written = 0
        except OSError:
            self._lose()
            return
        del self._waiting[:written]
        if self._waiting:
            self._empty.clear()
            self._loop.add_writer(self._descriptor, self._write)
        elif not self._empty.is_set():
            self._loop.remove_writer(self._descriptor)
            self._empty.set()

    def _lose(self) -> None:
        if self._lost:
            return
        self._loop.remove_writer(self._descriptor)
        self._lost = True
        self._waiting.clear()
        self._empty.set()
        self.on_lost()
