"""The sending end of a control channel.

asyncio's pipe transport cannot be used: it treats a readable descriptor as a closed pipe, but sshd gives its commands
one socket for both directions.
"""

import asyncio
import os
from collections.abc import Callable

from agents import protocol
from agents.protocol import Message, Progress, Vitals

FLUSH_S = 1.0
"""How long writing the last lines may take."""

_MOST_WAITING_BYTES = 1024 * 1024
"""While more bytes are waiting for the reader, `Progress` and `Vitals` are dropped in favour of other messages."""


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
