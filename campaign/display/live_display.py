"""Live display of a campaign on a terminal; without a terminal its state is printed once."""

import sys
from contextlib import suppress

from rich.console import Console
from rich.live import Live

from campaign.display.console import plain_console
from campaign.display.keyboard import Keyboard
from campaign.display.top_view import SORTS, screen, snapshot
from campaign.results.watch import CampaignCondition, Watched, look_at
from controller.host.signals import interrupted_once

PERIOD_S = 1.0

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
