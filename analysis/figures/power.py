"""Figure of power over time: one panel per node and domain, with the events of the runs."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from analysis.figures.data import Moment, Panel, PowerData, quantity
from analysis.figures.lines import draw_series
from analysis.figures.theme import hatch, say_empty, with_legend
from analysis.palette import MUTED, SHADE

_FRAME_IN = 0.75
_PANEL_IN = 1.35
_EVENT_ROW_IN = 0.17
_MOST_PANELS = 12
_MARKERS = ("^", "v", "D", "s", "o", "P", "X", "*", "<")


def power(data: PowerData) -> Figure:
    """Draw watts of every domain: every run, or with enough repetitions the median and the range."""
    shown = data.panels[:_MOST_PANELS]
    # Sorted by name, so that a kind of event has the same mark in all reports with these kinds.
    kinds = {words: _MARKERS[at % len(_MARKERS)] for at, words in enumerate(sorted({m.words for m in data.moments}))}
    left_out = len(data.panels) - len(shown)
    notes = [f"{len(shown)} of {len(data.panels)} domains; the others are in tables/power.csv"] if left_out else []
    height = _FRAME_IN + max(1, len(shown)) * _PANEL_IN + len(notes) * _EVENT_ROW_IN
    figure, every = with_legend("Power over time", data.looks, height, max(1, len(shown)))
    if not any(not math.isnan(y) for panel in shown for line in panel.lines for _, y in line.points):
        for axes in every:
            axes.set_axis_off()
        say_empty(every[0], "not measured")
        return figure
    used: dict[str, str] = {}
    for axes, panel in zip(every, shown, strict=True):
        used |= _draw(axes, data, panel, kinds)
    _explain(every[-1], used, notes)
    every[-1].set_xlabel("seconds since the measured interval began")
    return figure


def _draw(axes: Axes, data: PowerData, panel: Panel, kinds: dict[str, str]) -> dict[str, str]:
    """Draw one panel; return the marks in it."""
    what = f"{panel.node} · {panel.domain} · {panel.source}"
    notes = ["modelled"] * panel.modelled + ["not in the total"] * (not panel.in_total)
    axes.set_ylabel("W")
    axes.text(0.012, 0.97, ", ".join([what, *notes]), transform=axes.transAxes, va="top", fontsize=9, color=MUTED.light)
    draw_series(axes, data.looks, panel.lines)
    top = max((y for line in panel.lines for _, y in line.points if not math.isnan(y)), default=0.0)
    axes.set_ylim(0, top * 1.35 or 1.0)
    last = max(x for line in panel.lines for x, _ in line.points)
    axes.set_xlim(-data.warmup_s, last)
    if data.warmup_s > 0:
        axes.axvspan(-data.warmup_s, 0, color=SHADE.light, lw=0, zorder=0)
    if panel.modelled:
        hatch(axes)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value)))
    axes.grid(axis="y")
    here = [m for m in data.moments if m.node in ("", panel.node) and -data.warmup_s <= m.second <= last]
    return _mark(axes, data, here, kinds)


def _mark(axes: Axes, data: PowerData, moments: Sequence[Moment], kinds: dict[str, str]) -> dict[str, str]:
    for scheduler, look in data.looks.items():
        for words, marker in kinds.items():
            seconds = [m.second for m in moments if (m.scheduler, m.words) == (scheduler, words)]
            if seconds:
                foot: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "clip_on": False, "markersize": 5.5}
                axes.plot(seconds, [0.05] * len(seconds), marker, color=look.colour.light, **foot)
    return {m.words: kinds[m.words] for m in moments}


def _explain(axes: Axes, used: dict[str, str], notes: Sequence[str]) -> None:
    """Add a legend of the marks under the last panel."""
    for words, marker in sorted(used.items()):
        axes.plot([], [], marker, color=MUTED.light, label=words)
    for note in notes:
        axes.plot([], [], linestyle="", label=note)
    if used or notes:
        axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=2, fontsize=9)
