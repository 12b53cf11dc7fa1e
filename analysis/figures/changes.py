"""Figure of what was found: changes of the primary metrics against the baseline."""

from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import blended_transform_factory

from analysis.figures.data import ChangeData
from analysis.figures.palette import INK, MUTED
from analysis.figures.theme import new_figure
from analysis.records.descriptions import change

_ROW_IN = 0.21
_FRAME_IN = 0.68


def changes_figure(data: ChangeData) -> Figure:
    """Draw a row per metric and scheduler: every repetition as a dot, the median as a bar, its interval as a line."""
    rows = len(data.paired) * (len(data.looks) + 1)
    figure, axes = new_figure(f"Change against {data.baseline}", _FRAME_IN + rows * _ROW_IN)
    left = blended_transform_factory(axes.transAxes, axes.transData)
    names: list[tuple[float, str]] = []
    seen = [0.0]
    at = 0.0
    for heading, of_scheduler in data.paired.items():
        axes.text(0.008, at, heading, transform=left, va="center", color=MUTED.light, fontsize=9)
        at += 1
        for scheduler, look in data.looks.items():
            names.append((at, scheduler))
            colour = look.colour.light
            values = of_scheduler.get(scheduler, ())
            middle = data.middles[heading].get(scheduler)
            if middle is None:
                axes.text(0.008, at, "not available", transform=left, va="center", color=MUTED.light, fontsize=9)
                at += 1
                continue
            dots: dict[str, Any] = {"linestyle": "", "marker": look.marker, "color": colour, "clip_on": False}
            for value, suspect in zip(values, data.suspect[heading][scheduler], strict=True):
                axes.plot([value], [at], alpha=0.35, markerfacecolor="none" if suspect else colour, **dots)
            estimate, interval = middle
            ends = interval or (estimate, estimate)
            if interval:
                axes.plot(interval, [at, at], color=colour, linewidth=3.5, solid_capstyle="butt")
            axes.plot([estimate], [at], linestyle="", marker="|", markersize=10, markeredgewidth=1.8, color=colour)
            seen += [*values, *ends]
            axes.annotate(
                change(estimate),
                (max(*values, *ends), at),
                xytext=(7, 0),
                textcoords="offset points",
                va="center",
                color=INK.light,
                fontsize=9,
            )
            at += 1
        at += 0.35
    axes.axvline(0, color=MUTED.light, linewidth=1, zorder=0)
    axes.set_ylim(at - 0.75, -0.6)
    low, high = min(seen), max(seen)
    width = (high - low) or 1.0
    axes.set_xlim(low - 0.06 * width, high + 0.3 * width)
    axes.set_yticks([y for y, _ in names], [name for _, name in names], color=INK.light)
    axes.tick_params(axis="y", pad=6)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: change(value)))
    axes.grid(axis="x")
    return figure
