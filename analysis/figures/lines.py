"""Figures of series: throughput over time and the distribution of latency."""

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from analysis.figures.data import Line, WorkloadData, quantity
from analysis.figures.theme import Look, new_figure, say_empty
from analysis.palette import GRID, MUTED, SHADE

_HEIGHT_IN = 2.75
_LEGEND_ROW_IN = 0.19


def throughput(data: WorkloadData) -> Figure:
    """Tuples/s at sinks over time: every run, from enough repetitions on the median and the range at each moment."""
    figure, axes = _with_legend("Throughput over time", data)
    if not any(line.points for line in data.throughput):
        say_empty(axes, "not measured")
        return figure
    axes.set_xlabel("seconds since the measured interval began")
    axes.set_ylabel("tuples/s at sinks")
    _series(axes, data, data.throughput)
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
    """Latency at every quantile, the tail stretched, up to the quantile that the number of samples supports."""
    figure, axes = _with_legend("End-to-end latency", data)
    if not any(line.points for line in data.latency):
        say_empty(axes, "not measured")
        return figure
    axes.set_xlabel("percent of tuples that are at most so late")
    axes.set_ylabel("ms")
    axes.set_yscale("log")
    # A quantile beyond 1 - 1/n of n samples is the largest sample again.
    supported = [
        Line(line.scheduler, line.repetition, [(_tail(q), ms) for q, ms in line.points if q <= most])
        for line in data.latency
        for most in [1 - 1 / max(2, data.samples[line.scheduler, line.repetition])]
    ]
    _series(axes, data, supported)
    last = max((x for line in supported for x, _ in line.points), default=_tail(0.5))
    ticks = [q for q in (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999) if _tail(q) <= last * 1.05]
    axes.set_xticks([_tail(q) for q in ticks], [f"{q * 100:.4g}" for q in ticks])
    axes.set_xlim(0, last * 1.02)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value)))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: quantity(value) if _wide(axes) else ""))
    axes.grid(axis="both", which="major")
    axes.grid(axis="y", which="minor", color=GRID.light, linewidth=0.4)
    return figure


def _tail(quantile: float) -> float:
    """Place on an axis where each further nine takes the same room."""
    return -math.log10(max(1e-9, 1 - quantile))


def _wide(axes: Axes) -> bool:
    """Whether the axis spans less than a decade, so that minor ticks need their labels."""
    low, high = axes.get_ylim()
    return high / low < 10


def _with_legend(title: str, data: WorkloadData) -> tuple[Figure, Axes]:
    names = list(data.looks)
    columns = max(1, min(len(names), 54 // (max(map(len, names)) + 5)))
    rows = -(-len(names) // columns)
    figure, axes = new_figure(title, _HEIGHT_IN + rows * _LEGEND_ROW_IN)
    handles = [
        Line2D([], [], color=look.colour.light, linestyle=look.dash, linewidth=2.2, label=name)
        for name, look in data.looks.items()
    ]
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns)
    return figure, axes


def _series(axes: Axes, data: WorkloadData, lines: Sequence[Line]) -> None:
    for scheduler, look in data.looks.items():
        mine = [line for line in lines if line.scheduler == scheduler and line.points]
        if mine and data.enough(scheduler):
            _band(axes, look, mine)
        else:
            for line in mine:
                xs, ys = zip(*line.points, strict=True)
                axes.plot(xs, ys, color=look.colour.light, linestyle=look.dash, alpha=0.85)


def _band(axes: Axes, look: Look, lines: Sequence[Line]) -> None:
    """Median of the runs at each x, and the range between the smallest and the largest."""
    at: dict[float, list[float]] = defaultdict(list)
    for line in lines:
        for x, y in line.points:
            at[x].append(y)
    xs = sorted(at)
    axes.fill_between(
        xs, [min(at[x]) for x in xs], [max(at[x]) for x in xs], color=look.colour.light, alpha=0.18, linewidth=0
    )
    axes.plot(xs, [median(at[x]) for x in xs], color=look.colour.light, linestyle=look.dash, linewidth=1.8)
