"""Figures of energy by one meter: per tuple, against throughput, and idle."""

from textwrap import wrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from analysis.figures.data import MeterData, Point, quantity
from analysis.figures.dot_plots import dot_plots
from analysis.figures.theme import Look, hatch, with_legend
from analysis.palette import MUTED

_HEIGHT_IN = 2.9
_LINE = 54


def per_tuple(data: MeterData) -> Figure:
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
