"""Figures of one value per run or node: dot plots, also of energy by one meter, and the nodes that placements use.

Every run is a dot on a common axis from 0, grouped by metric.
"""

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import blended_transform_factory

from analysis.figures.data import DotPlots, MeterData, Point, WorkloadData, quantity
from analysis.figures.palette import GRID, INK, MUTED, Look
from analysis.figures.theme import hatch, new_figure, say_empty, with_legend
from analysis.statistics.intervals import Spread

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


def cpu_figure(data: WorkloadData) -> Figure:
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


_HEIGHT_IN = 2.9
_LINE = 54


def joules_per_tuple_figure(data: MeterData) -> Figure:
    """Draw J per tuple at sinks, gross and net, of every run."""
    groups = [("gross", "joules_per_tuple"), ("net of what is drawn when idle", "net_joules_per_tuple")]
    return _by(data, dot_plots(data.dot_plots, "Energy per tuple", _labelled("J per tuple at sinks", data), groups))


def idle(data: MeterData) -> Figure:
    """Draw the share of the energy that the machines would have used without workers, of every run."""
    groups = [("idle energy", "idle_percent")]
    return _by(data, dot_plots(data.dot_plots, "Idle share", _labelled("% of gross energy", data), groups))


def front(data: MeterData) -> Figure:
    """Draw J per tuple against tuples/s; with enough repetitions also medians with intervals, and the Pareto front."""
    figure, (axes,) = with_legend("Energy against throughput", data.dot_plots.looks, _HEIGHT_IN, dots=True)
    axes.set_xlabel(_labelled("tuples/s at sinks", data))
    axes.set_ylabel("J per tuple, gross")
    for point in data.runs:
        _dot(axes, point, data.dot_plots.looks[point.scheduler], 0.25 if data.middles else 0.85)
    for point in data.middles:
        _cross(axes, point, data.dot_plots.looks[point.scheduler])
    ahead = sorted((point.tuples_per_s, point.joules) for point in data.middles if point.on_front)
    if ahead:
        axes.plot([x for x, _ in ahead], [y for _, y in ahead], color=MUTED.light, linewidth=1, zorder=1)
        axes.annotate("front", ahead[-1], xytext=(5, -11), textcoords="offset points", color=MUTED.light, fontsize=9)
    axes.set_xlim(0, max(point.tuples_per_s for point in data.runs) * 1.12 or 1.0)
    axes.set_ylim(0, max(point.joules for point in data.runs) * 1.12 or 1.0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5))
        axis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value)))
    axes.grid()
    return _by(data, figure)


def _dot(axes: Axes, point: Point, look: Look, alpha: float) -> None:
    face = "none" if point.suspect else look.colour.light
    style: dict[str, Any] = {"color": look.colour.light, "markerfacecolor": face, "alpha": alpha, "linestyle": ""}
    axes.plot([point.tuples_per_s], [point.joules], marker=look.marker, **style)


def _cross(axes: Axes, point: Point, look: Look) -> None:
    """Draw a median with its intervals."""
    colour = look.colour.light
    if point.tuples_interval:
        axes.plot(point.tuples_interval, [point.joules] * 2, color=colour, linewidth=2)
    if point.joules_interval:
        axes.plot([point.tuples_per_s] * 2, point.joules_interval, color=colour, linewidth=2)
    axes.plot([point.tuples_per_s], [point.joules], marker=look.marker, color=colour, markersize=6.5)


def _labelled(label: str, data: MeterData) -> str:
    """Return an axis label with the source below, wrapped to the figure's width."""
    return "\n".join([label, *wrap(data.source, _LINE)])


def _by(data: MeterData, figure: Figure) -> Figure:
    if data.modelled:
        hatch(figure.axes[0])
    return figure


_USAGE_ROW_IN = 0.46
_USAGE_FRAME_IN = 0.95
_MOST_NUMBERED = 14
"""With more nodes than this, the numbers in the cells are not readable."""


def nodes_figure(data: WorkloadData) -> Figure:
    """Draw a row per placement and a cell per node, shaded and numbered by executors; free nodes are empty cells."""
    figure, axes = new_figure("Nodes used", _USAGE_FRAME_IN + len(data.placements) * _USAGE_ROW_IN)
    if not data.placements:
        say_empty(axes, "not recorded")
        return figure
    most = max((count for placements in data.placements for count in placements.executors.values()), default=1)
    width = len(data.nodes)
    for at, placements in enumerate(data.placements):
        colour = data.looks[placements.scheduler].colour.light
        for column, node in enumerate(data.nodes):
            count = placements.executors.get(node, 0)
            box = (column - 0.44, at - 0.4)
            axes.add_patch(Rectangle(box, 0.88, 0.8, facecolor="none", edgecolor=GRID.light, linewidth=1))
            if not count:
                continue
            axes.add_patch(Rectangle(box, 0.88, 0.8, facecolor=colour, alpha=0.18 + 0.32 * count / most, linewidth=0))
            if width <= _MOST_NUMBERED:
                axes.text(column, at, str(count), ha="center", va="center", color=INK.light)
        used, workers = len(placements.executors), sum(placements.workers.values())
        words = f"{used} of {width} nodes\n{workers} worker{'s' if workers != 1 else ''}"
        axes.text(width - 0.4, at, words, va="center", color=MUTED.light, fontsize=9, linespacing=1.3)
    different = len(data.placements) > len({placements.scheduler for placements in data.placements})
    axes.set_yticks(
        range(len(data.placements)),
        [f"{s.scheduler}\n{_repetitions(s.repetitions)}" if different else s.scheduler for s in data.placements],
        color=INK.light,
    )
    step = -(-width // _MOST_NUMBERED)
    axes.set_xticks(range(0, width, step), list(data.nodes)[::step])
    axes.tick_params(length=0)
    axes.set_xlabel("node, with the executors placed on it")
    axes.set_xlim(-0.5, width - 0.5 + 0.3 * width)
    axes.set_ylim(len(data.placements) - 0.45, -0.55)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    return figure


def _repetitions(numbers: Sequence[int]) -> str:
    return f"r{', '.join(map(str, numbers[:4]))}{', …' if len(numbers) > 4 else ''}"
