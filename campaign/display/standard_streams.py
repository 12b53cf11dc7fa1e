"""Standard streams of the program: results must reach their reader, progress and messages end nothing.

Python raises whatever the system says of a write, wherever somebody happens to write. Standard error carries progress
and messages only, and what it refuses is dropped; standard output carries results, and what it refuses is an error.
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
"""How long a reader of standard error that does not read may hold up the program, once."""


def open_standard_streams() -> None:
    """Give this process standard streams that are open and behave as described above."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Otherwise the next file that is opened gets the number, and what others write to it.
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - a number, and open until the end
    sys.stdout = _text(_Output(1, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Messages(2, "w", closefd=False), sys.stderr)


def _text(raw: io.FileIO, before: TextIO | None) -> io.TextIOWrapper:
    """Lines of text on `raw`, encoded as those on `before` were."""
    encoding, errors = (before.encoding, before.errors) if before else ("utf-8", "backslashreplace")
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=True)


class _Output(io.FileIO):
    """Standard output. A write that fails is reported once; what follows is dropped, that of Python's own end too."""

    _is_lost = False

    def write(self, data: "ReadableBuffer") -> int:
        """Write.

        Raises:
            BrokenPipeError: the reader has gone.
            UnfitError: it cannot be written.
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
    """Standard error. What cannot be written, or is not read, is dropped."""

    _is_stuck = False

    def write(self, data: "ReadableBuffer") -> int:
        view = memoryview(data)
        poll = select.poll()
        poll.register(self, select.POLLOUT)
        try:
            self._is_stuck = not poll.poll(0 if self._is_stuck else WAIT_MS)
            # So many bytes fit into a pipe of which the kernel says that it can be written.
            written = None if self._is_stuck else super().write(view[: select.PIPE_BUF])
        except OSError:
            written = None
        return len(view) if written is None else written
