"""Standard streams of the program, with different handling of failed writes.

Standard output carries results: a failed write is an error. Standard error carries progress and messages: a failed
write is ignored. Without this, Python would raise an exception wherever something is printed.
"""

import io
import os
import select
import sys
from typing import TYPE_CHECKING, TextIO

from inventory.errors import UnfitError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

WAIT_MS = 1000
"""How long a write to standard error may block, once."""


def open_standard_streams() -> None:
    """Replace the standard streams of this process by streams that are open and behave as described above."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Otherwise the next opened file gets this descriptor, and receives writes to the stream.
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - a number, and open until the end
    sys.stdout = _text(_Output(1, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Messages(2, "w", closefd=False), sys.stderr)


def _text(raw: io.FileIO, before: TextIO | None) -> io.TextIOWrapper:
    """Return a line-buffered text stream on `raw` with the encoding of `before`."""
    encoding, errors = (before.encoding, before.errors) if before else ("utf-8", "backslashreplace")
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=True)


class _Output(io.FileIO):
    """Standard output. The first failed write raises an error; later writes, also at Python's exit, are dropped."""

    _is_lost = False

    def write(self, data: "ReadableBuffer") -> int:
        """Write the data.

        Raises:
            BrokenPipeError: the reader has closed the pipe.
            UnfitError: the write failed.
        """
        if self._is_lost:
            return len(memoryview(data))
        try:
            return super().write(data)
        except OSError as fault:
            self._is_lost = True
            if isinstance(fault, BrokenPipeError):
                raise
            raise UnfitError(f"standard output cannot be written: {fault.strerror}") from None


class _Messages(io.FileIO):
    """Standard error. Data that cannot be written, or is not read in time, is dropped."""

    _is_stuck = False

    def write(self, data: "ReadableBuffer") -> int:
        view = memoryview(data)
        poll = select.poll()
        poll.register(self, select.POLLOUT)
        try:
            self._is_stuck = not poll.poll(0 if self._is_stuck else WAIT_MS)
            # A pipe that is ready for writing takes at least this many bytes.
            written = None if self._is_stuck else super().write(view[: select.PIPE_BUF])
        except OSError:
            written = None
        return len(view) if written is None else written
