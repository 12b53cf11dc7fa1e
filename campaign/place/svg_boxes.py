"""Boxes of a placement's picture: nodes with their slots and executors, coloured by component; and the legend."""

from collections import Counter
from dataclasses import dataclass
from html import escape as html_escape

from analysis.figures.palette import GRID, GROUND, INK, MUTED, SERIES, SHADE, Colour
from campaign.place.place import PlacedProblem
from inventory.foreign import escaped
from scheduler.explain.explanation import NodeLoad
from scheduler.problem import Problem

GAP = 8.0
CELL_WIDE, CELL_HIGH, CELL_GAP = 22.0, 15.0, 2.0
ACROSS = 6
"""Executors per row of a slot."""

WIDE = ACROSS * (CELL_WIDE + CELL_GAP) - CELL_GAP + 4 * GAP
"""Width of every node."""

MOST_CELLS = 48
"""A slot with more executors shows only their number per component."""

HEAD, FOOT, LINE = 36.0, 14.0, 16.0
LETTERS = 14
"""Maximum letters of a name in a box."""

Kind = tuple[str, str]
"""Topology and component."""


def escape(text: str) -> str:
    """Return `text` as XML; control characters, which XML cannot represent, are escaped."""
    return html_escape("\n".join(map(escaped, text.split("\n"))))


def written(x: float, y: float, text: str, colour: Colour, size: int, weight: int = 400, anchor: str = "start") -> str:
    """Return a text element of one line."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
        f"{colour_attributes(colour)}>{escape(text)}</text>"
    )


def colour_attributes(fill: Colour | None, stroke: Colour | None = None) -> str:
    """Return the colour attributes of a shape: a class, which follows the reader's theme, and a plain value."""
    classes = [f"f-{fill.name}"] if fill else []
    classes += [f"s-{stroke.name}"] if stroke else []
    plain = f'fill="{fill.light}"' if fill else 'fill="none"'
    return f'class="{" ".join(classes)}" {plain}' + (f' stroke="{stroke.light}"' if stroke else "")


@dataclass(frozen=True)
class ComponentStyle:
    """Style of a component's executors: colour, filled or hollow, square or round."""

    colour: Colour
    hollow: bool
    round: bool

    def cell(self, x: float, y: float, label: str, title: str) -> str:
        """Return one executor or a swatch of the legend."""
        paint = colour_attributes(GROUND if self.hollow else self.colour, self.colour)
        text = written(x + CELL_WIDE / 2, y + 11, label, INK if self.hollow else GROUND, 10, anchor="middle")
        return (
            f'<g><title>{escape(title)}</title><rect x="{x + 1:.1f}" y="{y + 1:.1f}" width="{CELL_WIDE - 2:.1f}" '
            f'height="{CELL_HIGH - 2:.1f}" rx="{6 if self.round else 2}" {paint} stroke-width="2"/>{text}</g>'
        )


class ComponentStyles:
    """Styles and names of a problem's components.

    Attributes:
        of: (topology, component) -> style, in the order of the topologies.
        name: (topology, component) -> name; with its topology if there are several.
        size: (topology, component) -> number of executors.
    """

    def __init__(self, problem: Problem) -> None:
        self.of: dict[Kind, ComponentStyle] = {}
        self.name: dict[Kind, str] = {}
        self.size: dict[Kind, int] = {}
        for topology in problem.topologies:
            for component in topology.components:
                around, at = divmod(len(self.of), len(SERIES))
                kind = (topology.id, component.id)
                self.of[kind] = ComponentStyle(SERIES[at], around % 2 == 1, around // 2 % 2 == 1)
                self.name[kind] = f"{topology.id}/{component.id}" if len(problem.topologies) > 1 else component.id
                self.size[kind] = component.parallelism


@dataclass(frozen=True)
class Box:
    """Drawing of a node with its upper left corner at (0, 0)."""

    height: float
    parts: tuple[str, ...]

    def at(self, x: float, y: float) -> list[str]:
        """Return the box with its upper left corner at (x, y)."""
        return [f'<g transform="translate({x:.1f} {y:.1f})">', *self.parts, "</g>"]


Contents = dict[str, dict[int, list[tuple[Kind, int]]]]
"""Node -> slot -> executors as (component, index), in the order of the topologies."""


def contents_of(placed: PlacedProblem) -> Contents:
    """Return the executors of every node and slot."""
    contents: Contents = {}
    for topology in placed.problem.topologies:
        assignments = placed.plan.placements[topology.id].assignments
        for executor in topology.executors:
            slot = assignments.get(executor)
            if slot is not None:
                here = contents.setdefault(slot.node, {}).setdefault(slot.index, [])
                here.append(((topology.id, executor.component), executor.index))
    return contents


def box_of(host: NodeLoad, slots: dict[int, list[tuple[Kind, int]]], styles: ComponentStyles) -> Box:
    """Return the box of a node with its slots."""
    parts: list[str] = []
    y = HEAD
    for index in sorted(slots):
        inside, high = _slot(index, slots[index], styles, y)
        parts.extend(inside)
        y += high + GAP
    free = host.slots - host.slots_used - host.slots_others
    words = [f"{free} slots free" if free != 1 else "1 slot free"] if host.available else ["not available"]
    if host.slots_others:
        words.append(f"{host.slots_others} of others")
    parts.append(written(GAP, y + 6, ", ".join(words), MUTED, 11))
    return Box(y + FOOT, (*_frame(host, y + FOOT), *parts))


def _frame(host: NodeLoad, height: float) -> list[str]:
    load = host.load + host.others_load
    dashed = "" if host.executors else ' stroke-dasharray="4 3"'
    frame = f'<rect width="{WIDE:.1f}" height="{height:.1f}" rx="8" {colour_attributes(SHADE, MUTED)}{dashed}/>'
    name = written(GAP, 19, _short(host.id), INK, 13, weight=600)
    text = written(WIDE - GAP, 19, f"{load:g} of {host.capacity:g}", MUTED, 11, anchor="end")
    room = WIDE - 2 * GAP
    share = min(1.0, load / host.capacity) if host.capacity else float(load > 0)
    bar = [f'<rect x="{GAP}" y="25" width="{room:.1f}" height="4" rx="2" {colour_attributes(GRID)}/>']
    if share:
        colour = SERIES[1] if host.overloaded else MUTED
        bar.append(f'<rect x="{GAP}" y="25" width="{room * share:.1f}" height="4" rx="2" {colour_attributes(colour)}/>')
    about = f"{host.id}: {host.executors} executors, load {load:g}, capacity {host.capacity:g}"
    return [f"<title>{escape(about)}</title>", frame, name, text, *bar]


def _slot(
    index: int, executors: list[tuple[Kind, int]], styles: ComponentStyles, top: float
) -> tuple[list[str], float]:
    """Return the parts of a slot, and its height."""
    left = 2 * GAP
    parts: list[str] = []
    if len(executors) <= MOST_CELLS:
        high = GAP + LINE + -(-len(executors) // ACROSS) * (CELL_HIGH + CELL_GAP)
        for at, (kind, number) in enumerate(executors):
            x = left + at % ACROSS * (CELL_WIDE + CELL_GAP)
            y = top + LINE + at // ACROSS * (CELL_HIGH + CELL_GAP) + 2
            parts.append(styles.of[kind].cell(x, y, str(number), f"{styles.name[kind]}[{number}]"))
    else:
        counts = Counter(kind for kind, _ in executors)
        high = GAP + LINE + len(counts) * LINE
        for at, (kind, count) in enumerate(counts.items()):
            y = top + LINE + at * LINE + 2
            parts.append(styles.of[kind].cell(left, y, "", styles.name[kind]))
            parts.append(written(left + CELL_WIDE + 6, y + 12, f"{count} x {_short(styles.name[kind])}", INK, 11))
    frame = (
        f'<rect x="{GAP}" y="{top:.1f}" width="{WIDE - 2 * GAP:.1f}" height="{high:.1f}" rx="5" '
        f"{colour_attributes(GROUND, GRID)}/>"
    )
    return [frame, written(left, top + 13, f"slot {index}", MUTED, 10), *parts], high


def legend(styles: ComponentStyles, top: float, width: float) -> tuple[list[str], float]:
    """Return the legend of components in rows, and its lower end."""
    parts: list[str] = []
    x, y = 24.0, top
    for kind, style in styles.of.items():
        text = f"{styles.name[kind]} ({styles.size[kind]})"
        wide = CELL_WIDE + 6 + 7.0 * len(text) + 16
        if x + wide > width and x > 24:
            x, y = 24.0, y + LINE + 4
        parts.append(style.cell(x, y, "", styles.name[kind]))
        parts.append(written(x + CELL_WIDE + 6, y + 12, text, INK, 12))
        x += wide
    return parts, y + LINE + 12


def _short(name: str) -> str:
    return name if len(name) <= LETTERS else name[: LETTERS - 1] + "\u2026"
