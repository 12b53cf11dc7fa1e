"""Figure of node usage: the number of executors per node and scheduler."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.figures.data import WorkloadData
from analysis.figures.theme import new_figure, say_empty
from analysis.palette import GRID, INK, MUTED

_ROW_IN = 0.46
_FRAME_IN = 0.95
_MOST_NUMBERED = 14
"""With more nodes than this, the numbers in the cells are not readable."""


def nodes_used(data: WorkloadData) -> Figure:
    """Draw a row per placement and a cell per node, shaded and numbered by executors; free nodes are empty cells."""
    figure, axes = new_figure("Nodes used", _FRAME_IN + len(data.placements) * _ROW_IN)
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
