"""The report's figures: one file per kind of drawing, `theme` for what they share."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

from analysis.figures.data import WorkloadData
from analysis.figures.lines import latency, throughput
from analysis.figures.seats import nodes_used
from analysis.figures.strips import cpu, traffic
from analysis.figures.theme import SETTINGS, render_svg


class Kind(NamedTuple):
    """A kind of figure: what draws it, and what it shows in one sentence."""

    draw: Callable[[WorkloadData], Figure]
    caption: str


KINDS: Mapping[str, Kind] = {
    "throughput": Kind(throughput, "Tuples that reach sinks per second, over the run; the warm-up is shaded."),
    "latency": Kind(
        latency,
        "From the instant at which a sampled tuple was due at the source to its arrival at a sink, by percentile.",
    ),
    "traffic": Kind(traffic, "Tuples delivered per second by the kind of hop they took."),
    "nodes": Kind(nodes_used, "Executors per node as each scheduler placed them; an empty cell is a free node."),
    "cpu": Kind(cpu, "CPU cores in use during the measured interval."),
}
"""Name -> figure, in the order of the page."""


def draw_all(data: WorkloadData, prefix: str) -> Iterator[tuple[str, str]]:
    """All figures of a workload as (name, standalone SVG document); `prefix` tells its ids from other workloads'."""
    with mpl.rc_context(SETTINGS):
        for name, kind in KINDS.items():
            description = f"{data.label}: {kind.caption}"
            yield name, render_svg(kind.draw(data), f"{prefix}-{name}", description)
