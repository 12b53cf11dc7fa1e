"""Keys of a terminal, read without Enter, and changes of its size."""

import os
import select
import signal
import sys
import termios
import tty
from types import TracebackType
from typing import Self

_MOST_BYTES = 1024


class Keyboard:
    """Keys that are pressed inside the block; standard input must be a terminal.

    Ctrl-C sends SIGINT as usual. Ctrl-Z is disabled: a stopped program would not restore the screen.
    """

    def __enter__(self) -> Self:
        self._input = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._input)
        tty.setcbreak(self._input)
        changed = termios.tcgetattr(self._input)
        changed[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(self._input, termios.TCSANOW, changed)
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._outer_wake = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        self._outer_handler = signal.signal(signal.SIGWINCH, lambda *_: None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGWINCH, self._outer_handler)
        signal.set_wakeup_fd(self._outer_wake)
        os.close(self._woken)
        os.close(self._wake)
        termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)

    def wait(self, seconds: float) -> str:
        """Return the pressed keys; empty after `seconds` or when the terminal is resized.

        Raises:
            EOFError: the terminal is gone.
        """
        ready, _, _ = select.select([self._input, self._woken], [], [], seconds)
        if self._woken in ready:
            os.read(self._woken, _MOST_BYTES)
        if self._input not in ready:
            return ""
        try:
            pressed = os.read(self._input, _MOST_BYTES)
        except OSError:
            raise EOFError from None
        if not pressed:
            raise EOFError
        return pressed.decode(errors="replace")
