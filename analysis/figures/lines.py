"""Figures of series: throughput over time and the distribution of latency."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from analysis.figures.data import Line, WorkloadData, quantity
from analysis.figures.theme import Look, say_empty, with_legend
from analysis.palette import MUTED, SHADE
from analysis.statistics import ENOUGH

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
    axes.margins(x=0.01)
    if data.warmup_s > 0:
        axes.axvspan(-data.warmup_s, 0, color=SHADE.light, lw=0, zorder=0)
        axes.set_xlim(-data.warmup_s, None)
        axes.text(0, 0.02, "warm-up ", transform=axes.get_xaxis_transform(), ha="right", va="bottom", color=MUTED.light)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value)))
    axes.grid(axis="y")
    return figure


def latency(data: WorkloadData) -> Figure:
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
        Line(line.scheduler, line.repetition, [(_tail(q), ms) for q, ms in line.points if q <= most], line.suspect)
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
        found = [float(f"{step}e{decade}") for decade in range(first, last + 1) for step in steps]
        found = [tick for tick in found if low <= tick <= high]
        if len(found) >= _FEWEST_TICKS:
            return found[:: -(-len(found) // _MOST_TICKS)]
    even = [float(f"{tick:.3g}") for tick in MaxNLocator(_MOST_TICKS - 2, steps=[1, 2, 5, 10]).tick_values(low, high)]
    return sorted({tick for tick in even if low <= tick <= high})


def draw_series(axes: Axes, looks: Mapping[str, Look], lines: Sequence[Line]) -> None:
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


def _band(axes: Axes, look: Look, lines: Sequence[Line], offset: int) -> None:
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
