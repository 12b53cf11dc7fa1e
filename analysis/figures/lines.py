"""Figures of series: throughput, latency, time slots and power over time, and the distribution of latency.

Power has one panel per node and domain, with the events of the runs. Time slots have one per value.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from analysis.figures.data import Band, Moment, Panel, PowerData, RunLine, SlotData, WorkloadData, quantity
from analysis.figures.palette import MUTED, SHADE, Look
from analysis.figures.theme import hatch, say_empty, with_legend
from analysis.statistics.intervals import ENOUGH

_HEIGHT_IN = 2.75
_FEWEST_TICKS, _MOST_TICKS = 3, 7


def throughput(data: WorkloadData) -> Figure:
    """Draw tuples/s at sinks over time: every run, or with enough repetitions the median and the range."""
    figure, (axes,) = with_legend("Throughput over time", data.looks, _HEIGHT_IN)
    if not any(line.points for line in data.throughput):
        say_empty(axes, "not measured")
        return figure
    axes.set_xlabel("seconds since the measured interval began")
    axes.set_ylabel("tuples/s at sinks")
    draw_series(axes, data.looks, data.throughput)
    for scheduler, seconds in data.recoveries.items():
        for second in seconds:
            axes.axvline(second, color=data.looks[scheduler].colour.light, linestyle=":", linewidth=1.0, zorder=0.5)
    axes.set_ylim(0, max(y for line in data.throughput for _, y in line.points) * 1.08 or 1.0)
    _draw_times(axes, data, data.warmup_s)
    if data.warmup_s > 0:
        axes.text(0, 0.02, "warm-up ", transform=axes.get_xaxis_transform(), ha="right", va="bottom", color=MUTED.light)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value)))
    axes.grid(axis="y")
    return figure


def latency_over_time(data: WorkloadData) -> Figure:
    """Draw the mean latency over time: every run, or with enough repetitions the median and the range."""
    figure, (axes,) = with_legend("Latency over time", data.looks, _HEIGHT_IN)
    # A logarithmic axis has no 0.
    lines = [replace(line, points=[(x, y) for x, y in line.points if y > 0]) for line in data.latency_over_time]
    if not any(line.points for line in lines):
        say_empty(axes, "not measured")
        return figure
    axes.set_xlabel("seconds since the measured interval began")
    axes.set_ylabel("mean latency, ms")
    axes.set_yscale("log")
    draw_series(axes, data.looks, lines)
    low, high = axes.get_ylim()
    ticks = log_ticks(low, high)
    axes.set_yticks(ticks, [quantity(tick) for tick in ticks])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(low, high)
    _draw_times(axes, data, data.warmup_s)
    axes.grid(axis="y", which="major")
    return figure


def _draw_times(axes: Axes, data: WorkloadData | SlotData, warmup_s: float = 0.0, top: float = 0.99) -> None:
    """Draw the warm-up, and numbered bands of changes; each scheduler has its own row of numbers, and its dashes.

    Numbers begin at `top`, a share of the height.
    """
    axes.margins(x=0.01)
    if warmup_s > 0:
        axes.axvspan(-warmup_s, 0, color=SHADE.light, lw=0, zorder=0)
        axes.set_xlim(-warmup_s, None)
    first, last = axes.get_xlim()
    for row, scheduler in enumerate(name for name in data.looks if name in data.bands):
        look = data.looks[scheduler]
        for band in data.bands[scheduler]:
            if first <= band.begin <= last:
                _draw_change(axes, look, replace(band, end=min(band.end, last)), top - 0.08 * row)
    axes.set_xlim(first, last)


def _draw_change(axes: Axes, look: Look, band: Band, y: float) -> None:
    """Draw a band; its number stands behind it, or before it near the right edge."""
    colour, (first, last) = look.colour.light, axes.get_xlim()
    axes.axvspan(band.begin, band.end, color=colour, alpha=0.15, linewidth=0, zorder=0.2)
    for edge in (band.begin, band.end):
        axes.axvline(edge, color=colour, linestyle=look.dash, linewidth=0.8, zorder=0.4)
    place: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "va": "top", "fontsize": 9, "clip_on": True}
    if band.end <= first + 0.93 * (last - first):
        axes.text(band.end, y, f" {band.name}", color=colour, ha="left", **place)
    else:
        axes.text(band.begin, y, f"{band.name} ", color=colour, ha="right", **place)


def latency_figure(data: WorkloadData) -> Figure:
    """Draw latency over quantiles on a stretched axis, up to the quantile that the number of samples supports."""
    figure, (axes,) = with_legend("End-to-end latency", data.looks, _HEIGHT_IN)
    if not any(line.points for line in data.latency):
        say_empty(axes, "not measured")
        return figure
    axes.set_xlabel("percent of tuples that are at most so late")
    axes.set_ylabel("ms")
    axes.set_yscale("log")
    # A quantile beyond 1 - 1/n of n samples is the largest sample again.
    supported = [
        RunLine(line.scheduler, line.repetition, [(_tail(q), ms) for q, ms in line.points if q <= most], line.suspect)
        for line in data.latency
        for most in [1 - 1 / max(2, data.samples[line.scheduler, line.repetition])]
    ]
    draw_series(axes, data.looks, supported)
    last = max((x for line in supported for x, _ in line.points), default=_tail(0.5))
    ticks = [q for q in (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999) if _tail(q) <= last * 1.05]
    axes.set_xticks([_tail(q) for q in ticks], [f"{q * 100:.4g}" for q in ticks])
    axes.set_xlim(0, last * 1.02)
    low, high = axes.get_ylim()
    ticks = log_ticks(low, high)
    axes.set_yticks(ticks, [quantity(tick) for tick in ticks])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(low, high)
    axes.grid(axis="both", which="major")
    return figure


def _tail(quantile: float) -> float:
    """Return the position on an axis on which each further nine takes the same space."""
    return -math.log10(max(1e-9, 1 - quantile))


def log_ticks(low: float, high: float) -> list[float]:
    """Return at least three round numbers between `low` and `high`, widely spaced on a logarithmic axis.

    >>> log_ticks(11, 260), log_ticks(0.8, 52_000), log_ticks(30, 33)
    ([20.0, 50.0, 100.0, 200.0], [1.0, 10.0, 100.0, 1000.0, 10000.0], [30.0, 31.0, 32.0, 33.0])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1,), (1, 3), (1, 2, 5)):
        ticks = [float(f"{step}e{decade}") for decade in range(first, last + 1) for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= _FEWEST_TICKS:
            return ticks[:: -(-len(ticks) // _MOST_TICKS)]
    even = [float(f"{tick:.3g}") for tick in MaxNLocator(_MOST_TICKS - 2, steps=[1, 2, 5, 10]).tick_values(low, high)]
    return sorted({tick for tick in even if low <= tick <= high})


def draw_series(axes: Axes, looks: Mapping[str, Look], lines: Sequence[RunLine]) -> None:
    """Draw every run's line, or the median and the range of a scheduler with enough runs.

    A NaN breaks the line. Suspect runs, and medians that include some, end with a hollow mark.
    """
    for at, (scheduler, look) in enumerate(looks.items()):
        mine = [line for line in lines if line.scheduler == scheduler and line.points]
        if len(mine) >= ENOUGH:
            _band(axes, look, mine, at)
        else:
            for line in mine:
                xs, ys = zip(*line.points, strict=True)
                axes.plot(xs, ys, alpha=0.85, **look.line(len(xs), at))
                if line.suspect:
                    _hollow(axes, look, xs[-1], ys[-1])


def _band(axes: Axes, look: Look, lines: Sequence[RunLine], offset: int) -> None:
    """Draw the median of the runs at each x, and the range between the smallest and the largest."""
    at: dict[float, list[float]] = defaultdict(list)
    for line in lines:
        for x, y in line.points:
            at[x] += [] if math.isnan(y) else [y]
    xs = sorted(at)
    low, middle, high = ([what(at[x]) if at[x] else math.nan for x in xs] for what in (min, median, max))
    axes.fill_between(xs, low, high, color=look.colour.light, alpha=0.18, linewidth=0)
    axes.plot(xs, middle, linewidth=1.8, **look.line(len(xs), offset))
    if any(line.suspect for line in lines):
        _hollow(axes, look, xs[-1], middle[-1])


def _hollow(axes: Axes, look: Look, x: float, y: float) -> None:
    axes.plot(
        [x], [y], linestyle="", marker=look.marker, color=look.colour.light, markerfacecolor="none", clip_on=False
    )


_FRAME_IN = 0.75
_PANEL_IN = 1.35
_EVENT_ROW_IN = 0.17
_MOST_PANELS = 12
_MARKERS = ("^", "v", "D", "s", "o", "P", "X", "*", "<")


def power_figure(data: PowerData) -> Figure:
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
    _from_zero(axes, panel.lines)
    last = max(x for line in panel.lines for x, _ in line.points)
    axes.set_xlim(-data.warmup_s, last)
    if data.warmup_s > 0:
        axes.axvspan(-data.warmup_s, 0, color=SHADE.light, lw=0, zorder=0)
    if panel.modelled:
        hatch(axes)
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


_NOT_AVAILABLE = "not available"
_LENGTH, _PREDICTED = "busy_slot_ms", "overlapped_ms"
_STAGES = {
    "transfer_ms": "T, transfer: until all tuples had arrived",
    "processing_ms": "P, processing",
    "packing_ms": "K, packing of results into outboxes",
    _LENGTH: "length of a slot, measured",
    _PREDICTED: "length of a slot, by the recurrence of PMOD",
}


def slot_stages(data: SlotData) -> Figure:
    """Draw the mean times of the stages of time slots over time, and their length beside that by the recurrence."""
    figure, every = with_legend("Stages of time slots", data.looks, _FRAME_IN + len(_STAGES) * _PANEL_IN, len(_STAGES))
    lengths = [line for column in (_LENGTH, _PREDICTED) for line in data.over_time[column]]
    for axes, (column, heading) in zip(every, _STAGES.items(), strict=True):
        _slot_panel(axes, data, column, heading, "ms", lengths if column in (_LENGTH, _PREDICTED) else ())
    every[-1].set_xlabel("seconds since the measured interval began")
    return figure


def slot_buffers(data: SlotData) -> Figure:
    """Draw the fill of buffers and the balance of nodes over time, and measured stalls against predicted ones."""
    figure, every = with_legend("Buffers, balance and stalls", data.looks, _FRAME_IN + 3 * _PANEL_IN + 0.5, 3)
    buffers, balance, stalls = every
    _slot_panel(buffers, data, "buffer_percent", "tuples in outboxes and inputs", "% of buffers")
    _slot_panel(balance, data, "spread", "parts that each node received in 5 s", "std. deviation")
    balance.set_xlabel("seconds since the measured interval began")
    _stalls(stalls, data)
    return figure


def _slot_panel(
    axes: Axes, data: SlotData, column: str, heading: str, unit: str, scale: Sequence[RunLine] = ()
) -> None:
    """Draw one value of time slots over time, on the scale of these lines or of its own."""
    lines = data.over_time[column]
    known = {line.scheduler for line in lines if _known(line)}
    if not _headed(axes, heading, {s: _NOT_AVAILABLE for s in data.looks if s not in known}, len(data.looks)):
        return
    axes.set_ylabel(unit)
    # A mark shows a line of a single point.
    draw_series(axes, {s: replace(look, mark=look.mark or ".") for s, look in data.looks.items()}, lines)
    _from_zero(axes, scale or lines)
    _draw_times(axes, data, top=0.84)
    axes.set_xlim(0, max(x for each in data.over_time.values() for line in each for x, _ in line.points))


def _stalls(axes: Axes, data: SlotData) -> None:
    """Draw a dot for every pair of a predicted and a measured stall, and the line on which the two are equal."""
    known = {line.scheduler for line in data.stalls if _known(line)}
    without = {s: _NOT_AVAILABLE if data.stalled_slots[s] else "no stalls" for s in data.looks if s not in known}
    if not _headed(axes, "stalls: measured against predicted", without, len(data.looks)):
        return
    axes.set_xlabel("predicted, ms")
    axes.set_ylabel("measured, ms")
    for line in filter(_known, data.stalls):
        look = data.looks[line.scheduler]
        xs, ys = zip(*line.points, strict=True)
        face = "none" if line.suspect else look.colour.light
        axes.plot(xs, ys, linestyle="", marker=look.marker, color=look.colour.light, markerfacecolor=face, alpha=0.5)
    most = max(x for line in data.stalls for x, _ in line.points) * 1.08 or 1.0
    axes.plot([0, most], [0, most], color=MUTED.light, linewidth=1, zorder=1)
    _from_zero(axes, data.stalls)
    axes.set_xlim(0, most)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value)))


def _headed(axes: Axes, heading: str, without: Mapping[str, str], schedulers: int) -> bool:
    """Write the heading of a panel, with the schedulers that it is without; return whether there is one to draw."""
    words = [heading]
    if len(without) == schedulers:
        say_empty(axes, ", ".join(dict.fromkeys(without.values())))
    else:
        words += [f"{scheduler}: {why}" for scheduler, why in without.items()]
    axes.text(0.012, 0.97, "; ".join(words), transform=axes.transAxes, va="top", fontsize=9, color=MUTED.light)
    return len(without) < schedulers


def _known(line: RunLine) -> bool:
    return any(not math.isnan(y) for _, y in line.points)


def _from_zero(axes: Axes, lines: Sequence[RunLine]) -> None:
    """Scale an axis of values from 0 on, with room for a heading above them."""
    top = max((y for line in lines for _, y in line.points if not math.isnan(y)), default=0.0)
    axes.set_ylim(0, top * 1.35 or 1.0)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value)))
    axes.grid(axis="y")
