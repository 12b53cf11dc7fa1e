"""The report's figures: one module per kind of drawing, and `theme` for their common style."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

from analysis.figures.data import MeterData, PowerData, WorkloadData
from analysis.figures.dot_plots import cpu, traffic
from analysis.figures.energy import front, idle, per_tuple
from analysis.figures.lines import latency, throughput
from analysis.figures.node_usage import nodes_used
from analysis.figures.power import power
from analysis.figures.theme import SETTINGS, render_svg


class Kind(NamedTuple):
    """A kind of figure: its drawing function and its caption."""

    draw: Callable[[WorkloadData], Figure]
    caption: str


DOTS = "Hollow dots are suspect runs."
ENDS = "Suspect runs, and medians over some, end with a hollow mark."

KINDS: Mapping[str, Kind] = {
    "throughput": Kind(
        throughput,
        f"Tuples that reach sinks per second, over the run; the warm-up is shaded, dotted lines are recoveries. {ENDS}",
    ),
    "latency": Kind(
        latency,
        "From the instant at which a sampled tuple was due at the source to its arrival at a sink, by percentile. "
        f"{ENDS}",
    ),
    "traffic": Kind(traffic, f"Tuples delivered per second by the kind of hop they took. {DOTS}"),
    "nodes": Kind(nodes_used, "Executors per node as each scheduler placed them; an empty cell is a free node."),
    "cpu": Kind(cpu, f"CPU cores in use during the measured interval. {DOTS}"),
}
"""Name -> figure, in the order of the page."""


class EnergyKind(NamedTuple):
    """A kind of figure of energy by one meter."""

    draw: Callable[[MeterData], Figure]
    caption: str


POWER_CAPTION = (
    "Power over the run by node, domain and source; the warm-up is shaded, where a line is broken power is not known. "
    f"{ENDS}"
)

ENERGY_KINDS: Mapping[str, EnergyKind] = {
    "energy": EnergyKind(per_tuple, f"Energy per tuple that reached a sink. {DOTS}"),
    "front": EnergyKind(
        front, "Energy per tuple against throughput: further down is less energy, further right more tuples."
    ),
    "idle": EnergyKind(idle, "The part of the energy that the machines draw without workers."),
}
"""Name -> figure of energy, one for every meter, in the order of the page; `power` stands before them."""


def draw_power(data: PowerData, prefix: str, label: str) -> str:
    """Draw power over time as a standalone SVG document."""
    with mpl.rc_context(SETTINGS):
        return render_svg(power(data), f"{prefix}-power", f"{label}: {POWER_CAPTION}")


def draw_energy(data: MeterData, prefix: str, label: str) -> Iterator[tuple[str, str]]:
    """Draw all figures of one meter; yield (name, standalone SVG document)."""
    with mpl.rc_context(SETTINGS):
        for name, kind in ENERGY_KINDS.items():
            description = f"{label}: {kind.caption} Source: {data.source}."
            yield name, render_svg(kind.draw(data), f"{prefix}-{name}", description)


def draw_all(data: WorkloadData, prefix: str) -> Iterator[tuple[str, str]]:
    """Draw all figures of a workload; yield (name, standalone SVG document). `prefix` makes their ids unique."""
    with mpl.rc_context(SETTINGS):
        for name, kind in KINDS.items():
            description = f"{data.label}: {kind.caption}"
            yield name, render_svg(kind.draw(data), f"{prefix}-{name}", description)
