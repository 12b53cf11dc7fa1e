"""All figures of a report: their names, captions and drawing functions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

from analysis.figures.changes import changes_figure
from analysis.figures.data import ChangeData, FactorMultiple, MeterData, PowerData, SlotData, WorkloadData
from analysis.figures.dot_plots import cpu_figure, front, idle, joules_per_tuple_figure, nodes_figure, traffic
from analysis.figures.factors import over_factor
from analysis.figures.lines import (
    latency_figure,
    latency_over_time,
    power_figure,
    slot_buffers,
    slot_stages,
    throughput,
)
from analysis.figures.theme import SETTINGS, render_svg

Keep = Callable[[str, Figure], None]
"""Takes the name and the drawing of every figure after it was rendered."""


def forget_figures(_name: str, _figure: Figure) -> None:
    """Keep nothing."""


class FigureKind(NamedTuple):
    """A kind of figure: its drawing function and its caption."""

    draw: Callable[[WorkloadData], Figure]
    caption: str


DOTS = "Hollow dots are suspect runs."
BANDS = "Numbered bands: changes of the running topology until it had recovered, in the first repetition."
ENDS = "Suspect runs, and medians over some, end with a hollow mark."

KINDS: Mapping[str, FigureKind] = {
    "throughput": FigureKind(
        throughput,
        "Tuples that reach sinks per second, over the run; the warm-up is shaded, dotted lines are recoveries. "
        f"{BANDS} {ENDS}",
    ),
    "latency-over-time": FigureKind(
        latency_over_time, f"Mean latency over the run; the warm-up is shaded. {BANDS} {ENDS}"
    ),
    "latency": FigureKind(
        latency_figure,
        "From the instant at which a sampled tuple was due at the source to its arrival at a sink, by percentile. "
        f"{ENDS}",
    ),
    "traffic": FigureKind(traffic, f"Tuples delivered per second by the kind of hop they took. {DOTS}"),
    "nodes": FigureKind(
        nodes_figure, "Executors per node as each scheduler placed them; an empty cell is a free node."
    ),
    "cpu": FigureKind(cpu_figure, f"CPU cores in use during the measured interval. {DOTS}"),
}
"""Name -> figure, in the order of the page."""


class SlotKind(NamedTuple):
    """A kind of figure of time slots."""

    draw: Callable[[SlotData], Figure]
    caption: str


SLOT_KINDS: Mapping[str, SlotKind] = {
    "slot-stages": SlotKind(
        slot_stages,
        "Means over the time slots in which something left. The recurrence of PMOD is how long a slot takes if the "
        f"next one begins when all tuples have arrived. {BANDS} {ENDS}",
    ),
    "slot-buffers": SlotKind(
        slot_buffers,
        "Tuples in outboxes and inputs, in percent of what all executors have; standard deviation over the nodes of "
        "the parts that each received in five seconds; means over the stalled slots of a step, or of a run from ten "
        f"repetitions on: on the line, a stall is as long as predicted. {BANDS} {ENDS} {DOTS}",
    ),
}
"""Name -> figure of time slots, of workloads with runs that follow a communication schedule."""


class EnergyKind(NamedTuple):
    """A kind of figure of energy by one meter."""

    draw: Callable[[MeterData], Figure]
    caption: str


POWER_CAPTION = (
    "Power over the run by node, domain and source; the warm-up is shaded, where a line is broken power is not known. "
    f"{ENDS}"
)

ENERGY_KINDS: Mapping[str, EnergyKind] = {
    "energy": EnergyKind(joules_per_tuple_figure, f"Energy per tuple that reached a sink. {DOTS}"),
    "front": EnergyKind(
        front, "Energy per tuple against throughput: further down is less energy, further right more tuples."
    ),
    "idle": EnergyKind(idle, "The part of the energy that the machines draw without workers."),
}
"""Name -> figure of energy, one for every meter, in the order of the page; `power` stands before them."""


CHANGES_CAPTION = f"Dots are repetitions, each against the baseline in the same one; bars are ratios of medians. {DOTS}"


def draw_changes(data: ChangeData, prefix: str, label: str, keep: Keep = forget_figures) -> str:
    """Draw what was found as a standalone SVG document."""
    with mpl.rc_context(SETTINGS):
        return _svg(changes_figure(data), prefix, "found", f"{label}: {CHANGES_CAPTION}", keep)


def _svg(figure: Figure, prefix: str, name: str, description: str, keep: Keep) -> str:
    svg = render_svg(figure, f"{prefix}-{name}", description)
    keep(name, figure)
    return svg


FACTORS_CAPTION = (
    "Medians; bars are their intervals, below ten repetitions the ranges. Figures of one workload have the same "
    "scales. Hollow marks include suspect runs."
)


def draw_factors(
    multiples: Sequence[FactorMultiple], prefix: str, label: str, keep: Keep = forget_figures
) -> Iterator[tuple[str, str]]:
    """Draw figures over a factor; yield (name, standalone SVG document)."""
    with mpl.rc_context(SETTINGS):
        for number, data in enumerate(multiples, 1):
            place = f"{label} over {data.factor}{', at ' if data.title else ''}{data.title}"
            name = f"factors-{number}"
            yield name, _svg(over_factor(data), prefix, name, f"{place}: {FACTORS_CAPTION}", keep)


def draw_slots(data: SlotData, prefix: str, label: str, keep: Keep = forget_figures) -> Iterator[tuple[str, str]]:
    """Draw all figures of time slots; yield (name, standalone SVG document)."""
    with mpl.rc_context(SETTINGS):
        for name, kind in SLOT_KINDS.items():
            yield name, _svg(kind.draw(data), prefix, name, f"{label}: {kind.caption}", keep)


def draw_power(data: PowerData, prefix: str, label: str, keep: Keep = forget_figures) -> str:
    """Draw power over time as a standalone SVG document."""
    with mpl.rc_context(SETTINGS):
        return _svg(power_figure(data), prefix, "power", f"{label}: {POWER_CAPTION}", keep)


def draw_energy(data: MeterData, prefix: str, label: str, keep: Keep = forget_figures) -> Iterator[tuple[str, str]]:
    """Draw all figures of one meter; yield (name, standalone SVG document)."""
    with mpl.rc_context(SETTINGS):
        for name, kind in ENERGY_KINDS.items():
            description = f"{label}: {kind.caption} Source: {data.source}."
            yield name, _svg(kind.draw(data), prefix, name, description, keep)


def draw_all(data: WorkloadData, prefix: str, keep: Keep = forget_figures) -> Iterator[tuple[str, str]]:
    """Draw all figures of a workload; yield (name, standalone SVG document). `prefix` makes their ids unique."""
    with mpl.rc_context(SETTINGS):
        for name, kind in KINDS.items():
            description = f"{data.label}: {kind.caption}"
            yield name, _svg(kind.draw(data), prefix, name, description, keep)
