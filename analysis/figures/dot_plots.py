"""Dot plots: every run a dot on a common axis from 0, grouped by metric."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import blended_transform_factory

from analysis.figures.data import DotPlots, WorkloadData, quantity
from analysis.figures.theme import Look, new_figure
from analysis.palette import INK, MUTED
from analysis.statistics import Spread

_ROW_IN = 0.21
_FRAME_IN = 0.85


def traffic(data: WorkloadData) -> Figure:
    """Draw tuples/s delivered within a worker, between workers of a node, and between nodes."""
    groups = [
        ("within a worker", "intra_worker_tuples_per_s"),
        ("between workers of a node", "inter_worker_tuples_per_s"),
        ("between nodes", "inter_node_tuples_per_s"),
    ]
    return dot_plots(_all_of(data), "Traffic by hop", "tuples/s delivered", groups)


def cpu(data: WorkloadData) -> Figure:
    """Draw CPU cores in use by workers, by the agents with their sensors, and by everything on the host."""
    groups = [
        ("worker processes", "worker_cores"),
        ("node agents with their sensors", "agent_cores"),
        ("the whole host, others included", "host_cores"),
    ]
    return dot_plots(_all_of(data), "CPU in use", "cores", groups)


def _all_of(data: WorkloadData) -> DotPlots:
    return DotPlots(data.looks, data.values, data.spreads, data.suspect)


def dot_plots(data: DotPlots, title: str, label: str, groups: Sequence[tuple[str, str]]) -> Figure:
    """Draw one row per group and scheduler; `groups` are headings with the name of their metric."""
    rows = len(groups) * (len(data.looks) + 1)
    figure, axes = new_figure(title, _FRAME_IN + rows * _ROW_IN)
    axes.set_xlabel(label)
    names: list[tuple[float, str]] = []
    largest = 0.0
    at = 0.0
    for heading, metric in groups:
        left = blended_transform_factory(axes.transAxes, axes.transData)
        axes.text(0.008, at, heading, transform=left, va="center", color=MUTED.light, fontsize=9)
        at += 1
        for scheduler, look in data.looks.items():
            spread = data.spreads[metric].get(scheduler)
            values = data.values[metric].get(scheduler, ())
            names.append((at, scheduler))
            if spread is None:
                axes.text(0.008, at, "not measured", transform=left, va="center", color=MUTED.light)
            else:
                suspect = data.suspect.get(metric, {}).get(scheduler) or [False] * len(values)
                _row(axes, at, list(zip(values, suspect, strict=True)), spread, look)
                largest = max(largest, spread.high)
            at += 1
        at += 0.35
    axes.set_ylim(at - 0.75, -0.6)
    axes.set_yticks([y for y, _ in names], [name for _, name in names], color=INK.light)
    # Space for the numbers at the right of the dots.
    intervals = any(seen and seen.median for _, metric in groups for seen in data.spreads[metric].values())
    axes.set_xlim(0, (largest or 1.0) * (1.75 if intervals else 1.5))
    axes.tick_params(axis="y", pad=6)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value)))
    axes.grid(axis="x")
    return figure


def _row(axes: Axes, at: float, values: Sequence[tuple[float, bool]], spread: Spread, look: Look) -> None:
    """Draw one scheduler's runs, with their range, or with enough repetitions the median and its interval.

    `values` are pairs of a value and whether its run is suspect; dots of suspect runs are hollow.
    """
    colour = look.colour.light
    # Do not clip a dot at 0.
    dots: dict[str, Any] = {"linestyle": "", "marker": look.marker, "color": colour, "clip_on": False}

    def draw(alpha: float) -> None:
        for suspect, face in ((False, colour), (True, "none")):
            chosen = [value for value, of_suspect in values if of_suspect == suspect]
            if chosen:
                axes.plot(chosen, [at] * len(chosen), alpha=alpha, markerfacecolor=face, **dots)

    if spread.median is None:
        axes.plot([spread.low, spread.high], [at, at], color=colour, linewidth=1.2, solid_capstyle="round")
        draw(0.8)
        words = _span(spread.low, spread.high)
    else:
        inner = spread.median
        draw(0.25)
        axes.plot([inner.low, inner.high], [at, at], color=colour, linewidth=3.5, solid_capstyle="butt")
        axes.plot([inner.estimate], [at], linestyle="", marker="|", markersize=10, markeredgewidth=1.6, color=colour)
        words = f"{quantity(inner.estimate)}  [{_span(inner.low, inner.high)}]"
    axes.annotate(
        words, (spread.high, at), xytext=(7, 0), textcoords="offset points", va="center", color=INK.light, fontsize=9
    )


def _span(low: float, high: float) -> str:
    first, last = quantity(low), quantity(high)
    return first if first == last else f"{first} – {last}"
