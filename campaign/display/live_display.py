"""Live display of a campaign on a terminal; without a terminal its state is printed once."""

import os
import select
import signal
import sys
import termios
import tty
from contextlib import suppress
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live

from campaign.display.console import plain_console
from campaign.display.top_view import SORTS, screen, snapshot
from campaign.results.watch import CampaignCondition, Watched, look_at
from controller.host.signals import interrupted_once

PERIOD_S = 1.0
_MOST_BYTES = 1024

_OVER = (CampaignCondition.ENDED, CampaignCondition.DIED)


def show(watched: Watched, color: bool) -> None:
    """Show a campaign, live if there is a terminal and the campaign has not ended.

    Raises:
        InputError: its folder is gone, or its `live.json` is no longer valid.
    """
    console = plain_console(color)
    if console.is_terminal and not console.is_dumb_terminal and sys.stdin.isatty() and watched.condition not in _OVER:
        watched = _follow(watched, console)
        if watched.condition not in _OVER:
            return
    # A pipe has no width; do not wrap lines.
    console.print(snapshot(watched), soft_wrap=not console.is_terminal)


def _follow(watched: Watched, console: Console) -> Watched:
    """Draw until the campaign ends or the user quits; return its last state."""
    sort = "r"
    with (
        suppress(KeyboardInterrupt, EOFError),
        interrupted_once(),
        Keyboard() as keys,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while watched.condition not in _OVER:
            live.update(screen(watched, sort, *console.size), refresh=True)
            pressed = keys.wait(PERIOD_S)
            if "q" in pressed:
                break
            sort = next((key for key in reversed(pressed) if key in SORTS), sort)
            watched = look_at(watched.folder)
    return watched


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
