"""Figure of values over a factor: a panel per metric; figures of other combinations have the same scales."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from analysis.figures.data import FactorMultiple, quantity
from analysis.figures.palette import MUTED
from analysis.figures.theme import say_empty, with_legend

_FRAME_IN = 0.8
_PANEL_IN = 1.25
_MOST_TICKS = 8
_WIDE = 20
"""Ratio of the largest to the smallest value of a factor from which its axis is logarithmic."""


def over_factor(data: FactorMultiple) -> Figure:
    """Draw medians over the factor, with intervals or ranges as bars; hollow marks are of suspect runs."""
    title = f"Over {data.factor}" + (f", at {data.title}" if data.title else "")
    figure, panels = with_legend(title, data.looks, _FRAME_IN + len(data.points) * _PANEL_IN, len(data.points))
    for axes, (heading, lines) in zip(panels, data.points.items(), strict=True):
        axes.set_title(f"{heading}, {data.units[heading]}", loc="left", fontsize=9, color=MUTED.light, pad=3)
        if not any(lines.values()):
            say_empty(axes, "not measured")
            continue
        _draw(axes, data, heading)
    if legend := panels[0].get_legend():
        # The title of the first panel stands where its legend would begin.
        legend.set_bbox_to_anchor((0, 1.16))
    panels[-1].set_xlabel(data.factor)
    return figure


def _draw(axes: Axes, data: FactorMultiple, heading: str) -> None:
    places = [x for x, _ in data.ticks]
    is_log = min(places) > 0 and max(places) >= _WIDE * min(places)
    if is_log:
        axes.set_xscale("log")
    for at, (scheduler, look) in enumerate(data.looks.items()):
        points = data.points[heading][scheduler]
        # Bars of schedulers with equal values stand beside one another.
        beside = (at - (len(data.looks) - 1) / 2) * 0.012
        if is_log:
            xs = [point.x * (max(places) / min(places)) ** beside for point in points]
        else:
            xs = [point.x + beside * (max(places) - min(places)) for point in points]
        colour = look.colour.light
        axes.plot(xs, [point.median for point in points], **look.line(1))
        for x, point in zip(xs, points, strict=True):
            axes.plot([x, x], point.ends, color=colour, linewidth=1.6)
            dot: dict[str, Any] = {"marker": look.marker, "color": colour, "linestyle": "", "clip_on": False}
            axes.plot([x], [point.median], markerfacecolor="none" if point.suspect else colour, **dot)
    step = -(-len(data.ticks) // _MOST_TICKS)
    axes.set_xticks(places[::step], [text for _, text in data.ticks][::step])
    axes.minorticks_off()
    axes.margins(x=0.06)
    axes.set_ylim(0, data.limits[heading] * 1.08 or 1.0)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value)))
    axes.grid(axis="y")
