"""Display of `millrace top`: its screen, cut to the terminal, its keys, and a single state without a terminal."""

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from msgspec.structs import replace
from rich.console import Console, Group, RenderableType
from rich.filesize import decimal
from rich.live import Live
from rich.table import Table
from rich.text import Text

from campaign.display.progress import decision_in_words, head
from campaign.display.terminal import plain_console
from campaign.results.live_file import REPORTING, CampaignCondition, Watched, died_utc, duration_text, look_at
from controller.coordinator.live_metrics import ExecutorFlow, FlowDocument
from controller.host.signals import interrupted_once
from inventory.foreign import printable

WIDE, HIGH = 116, 12
"""Minimum columns and lines for nodes and traffic beside the executors."""

_MUCH, _MOST = 0.5, 0.9
"""Minimum shares that are shown in yellow and in red."""

Key = Callable[[ExecutorFlow], float]

SORTS: dict[str, tuple[str, Key]] = {
    "r": ("rate", lambda e: max(e.in_per_s or 0.0, e.out_per_s or 0.0)),
    "u": ("queue", lambda e: e.queued or 0),
    "b": ("busy", lambda e: e.busy or 0.0),
}
"""Key on the keyboard -> label and sort key, largest first."""

HOPS = {"intra_worker": "within workers", "inter_worker": "within nodes", "inter_node": "between nodes"}


def screen(watched: Watched, sort: str, width: int, height: int) -> RenderableType:
    """Return the screen for a terminal of this size; `sort` is a key of `SORTS`."""
    lines = _top(watched)
    for line in lines:
        if isinstance(line, Text):
            line.no_wrap, line.overflow = True, "ellipsis"
    flow = _flow(watched)
    left = height - len(lines) - 2
    foot = Text(no_wrap=True, overflow="ellipsis").append("sort by", "dim")
    for key, (word, _) in SORTS.items():
        foot.append(f"  {key} ", "bold").append(word, "reverse" if key == sort else "")
    foot.append("    q ", "bold").append("quit")
    arrange = _wide if width >= WIDE and left >= HIGH else _narrow
    body = [] if flow is None else arrange(flow, _decisions(watched), sort, left)
    return Group(*lines, Text(""), *body, foot)


def snapshot(watched: Watched) -> RenderableType:
    """Return the full state, for output without a terminal."""
    flow = _flow(watched)
    if flow is None:
        return Group(*_top(watched))
    parts: list[RenderableType] = [_executors(flow, "r", None), _hops(flow), _pairs(flow, None), _nodes(flow, None)]
    if decisions := _decisions(watched):
        parts.append(Group(*decisions))
    return Group(*_top(watched), *(part for shown in parts for part in (Text(""), shown)))


def _flow(watched: Watched) -> FlowDocument | None:
    return None if watched.live is None else watched.live.flow


def _decisions(watched: Watched) -> list[Text]:
    """Return a line for each of the last decisions, the newest first."""
    lines = []
    for entry in () if watched.live is None else watched.live.decisions:
        line = Text(f"decision {entry.number}", no_wrap=True, overflow="ellipsis")
        line.append(f" at {entry.at_s:.1f} s, after {entry.decided_s:.2g} s: ", "dim")
        lines.append(line.append(printable(decision_in_words(entry)), "yellow" if entry.reason else ""))
    return lines


def _top(watched: Watched) -> list[RenderableType]:
    """Return the lines about the campaign and its condition."""
    live = watched.live
    if live is not None and live.stage == REPORTING:
        live = replace(live, stage_elapsed_s=live.stage_elapsed_s + watched.age_s)
    lines = [] if live is None else head(live)
    folder = printable(watched.folder)
    match watched.condition:
        case CampaignCondition.PREPARING:
            lines.append(Text(f"preparing: the campaign in {folder} has not written its state yet"))
        case CampaignCondition.SILENT:
            lines.append(Text(f"no update for {duration_text(watched.age_s)}: the state shown is old", "bold red"))
        case CampaignCondition.DIED:
            cause = f"died: its process is gone; last update: {died_utc(watched)}"
            lines.append(Text(f"{cause}. Continue with: millrace run --resume {folder}", "bold red"))
        case CampaignCondition.ENDED:
            lines.append(Text(f"the campaign has ended; results: {folder}", "bold"))
        case CampaignCondition.RUNNING:
            pass
    return lines


def _wide(flow: FlowDocument, decisions: Sequence[Text], sort: str, height: int) -> list[RenderableType]:
    """Put pairs and nodes beside the executors, and decisions, up to a quarter of the lines, below."""
    below = decisions[: height // 4]
    height -= len(below)
    beside = Table.grid(padding=(0, 3))
    half = (height - 3) // 2
    beside.add_row(_executors(flow, sort, height - 2), Group(_pairs(flow, half), Text(""), _nodes(flow, half)))
    return [beside, _hops(flow), *below, Text("")]


def _narrow(flow: FlowDocument, decisions: Sequence[Text], sort: str, height: int) -> list[RenderableType]:
    """Give decisions up to a quarter of the lines, nodes and pairs up to a third of the others each."""
    parts: list[RenderableType] = [*decisions[: height // 4]]
    left = height - 1 - len(parts)
    third = left // 3
    for rows, draw in ((len(flow.traffic), _pairs), (len(flow.nodes), _nodes)):
        if rows and third >= 3:
            part = min(third, rows + 1)
            parts.append(draw(flow, part))
            left -= part
    return [_executors(flow, sort, left), _hops(flow), *parts]


def _executors(flow: FlowDocument, sort: str, height: int | None) -> Table:
    _, weight = SORTS[sort]
    rows = [
        (
            entry.executor,
            f"{entry.node}/{entry.slot}",
            _count(entry.in_per_s),
            _count(entry.out_per_s),
            _count(entry.queued),
            _share(entry.busy),
            _share(entry.blocked),
            _UNKNOWN if entry.late_s is None else f"{entry.late_s:.2f} s",
        )
        for entry in sorted(flow.executors, key=weight, reverse=True)
    ]
    return _table(("executor", "node/slot", "in/s", "out/s", "queue", "busy", "blocked", "late"), 2, rows, height)


def _hops(flow: FlowDocument) -> Text:
    """Return tuples and bytes per second by kind of hop, in one line."""
    line = Text(no_wrap=True, overflow="ellipsis").append("tuples/s", "bold")
    for hop, words in HOPS.items():
        here = [entry for entry in flow.traffic if entry.hop == hop]
        tuples = sum(entry.tuples_per_s or 0.0 for entry in here)
        nbytes = sum(entry.bytes_per_s or 0.0 for entry in here)
        line.append(f"  {words} ").append(f"{tuples:,.0f}", "cyan")
        if nbytes:
            line.append(f" ({_bytes(nbytes)}/s)")
    return line


def _pairs(flow: FlowDocument, height: int | None) -> Table:
    across = [entry for entry in flow.traffic if entry.hop == "inter_node"]
    across.sort(key=lambda entry: entry.tuples_per_s or 0.0, reverse=True)
    rows = [
        (
            f"{entry.source} -> {entry.target}",
            _count(entry.tuples_per_s),
            _UNKNOWN if entry.bytes_per_s is None else _bytes(entry.bytes_per_s),
        )
        for entry in across
    ]
    return _table(("between nodes", "tuples/s", "bytes/s"), 1, rows, height)


def _nodes(flow: FlowDocument, height: int | None) -> Table:
    rows = [
        (
            entry.node,
            _UNKNOWN if entry.cpu_cores is None else f"{entry.cpu_cores:.2f}",
            Text("  ").join(_colored(f"{slot}: {cores:.2f}", cores) for slot, cores in entry.workers.items()),
        )
        for entry in flow.nodes
    ]
    table = _table(("node", "CPU, cores", "by slot"), 1, rows, height)
    table.columns[2].justify = "left"
    return table


_UNKNOWN = "-"


def _table(titles: Sequence[str], names: int, rows: Sequence[Sequence[str | Text]], height: int | None) -> Table:
    """Return a table of at most `height` lines; its first `names` columns are text, the others numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for at, title in enumerate(titles):
        table.add_column(title, justify="left" if at < names else "right", no_wrap=True)
    most = len(rows) if height is None or len(rows) < height else max(0, height - 2)
    for row in rows[:most]:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    if most < len(rows):
        table.add_row(Text(f"{len(rows) - most} more", "dim"))
    return table


def _count(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:,.0f}"


def _bytes(value: float) -> str:
    return decimal(round(value))


def _share(value: float | None) -> Text:
    if value is None:
        return Text(_UNKNOWN)
    return _colored(f"{value:.1%}", value)


def _colored(text: str, share: float) -> Text:
    """Return text in the colour of a share; a worker, which is one thread, has 1 core."""
    return Text(text, "red" if share >= _MOST else "yellow" if share >= _MUCH else "")


PERIOD_S = 1.0
_MOST_BYTES = 1024

_OVER = (CampaignCondition.ENDED, CampaignCondition.DIED)


def show_top(watched: Watched, color: bool) -> None:
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
