"""Pictures of placements: an SVG file with nodes on a circle, slots inside, and lines as wide as the traffic.

A file is self-contained, follows the reader's light or dark theme, and is identical for the same placement.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from math import cos, hypot, pi, sin
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from analysis.figures.palette import GRID, GROUND, INK, MUTED, PALETTE, SHADE
from campaign.place.place import PlacedProblem, PlacementRefused
from campaign.place.svg_boxes import (
    GAP,
    WIDE,
    Box,
    ComponentStyles,
    box_of,
    colour_attributes,
    contents_of,
    escape,
    legend,
    written,
)
from inventory.atomic_files import replace_file
from inventory.errors import InputError
from inventory.own_files import check_file
from scheduler.explain.explanation import between_nodes, loads_by_node

MOST_NODES = 24
"""Maximum number of nodes with which empty nodes are drawn."""

MOST_DRAWN = 120
"""Maximum number of nodes in a picture; those with most executors are drawn."""

MOST_LINES = 400
MOST_LABELS = 15

THICKEST = 10.0
MARGIN = 24.0
LEAST_WIDTH = 520.0
LETTER = 6.8
"""Upper bound of the width of a letter below the title."""

HEAD = 64.0

_TITLE = "Placement by "
"""Begin of the title that every picture has."""


Point = tuple[float, float]


class Rectangle(NamedTuple):
    """Centre and height of a box."""

    x: float
    y: float
    height: float

    def covers(self, x: float, y: float) -> bool:
        """Return whether a label at this point would touch the box."""
        return abs(x - self.x) < WIDE / 2 + 14 and abs(y - self.y) < self.height / 2 + 12


def draw(outcomes: Sequence[PlacedProblem | PlacementRefused], folder: Path) -> list[Path]:
    """Draw every placement as `folder`/NAME.svg, with lines on one scale; return the files.

    Raises:
        InputError: the folder cannot be written, or has a file of the same name that is no such picture.
    """
    placed = [outcome for outcome in outcomes if isinstance(outcome, PlacedProblem)]
    scale = max((rate for each in placed for rate in _rates(each).values()), default=0.0)
    paths = {folder / f"{quote(each.answer.scheduler, safe='')}.svg": each for each in placed}
    for path in paths:
        check_file(path, f'aria-label="{_TITLE}', "--pictures")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, each in paths.items():
            replace_file(path, picture(each, scale).encode(), durable=True)
    except OSError as fault:
        raise InputError(f"--pictures: {folder}: cannot be written: {fault.strerror}") from None
    return [*paths]


def picture(placed: PlacedProblem, scale: float) -> str:
    """Return the SVG document of one placement; a line with rate `scale` has the greatest width."""
    styles = ComponentStyles(placed.problem)
    drawn = _drawn(placed)
    hosts = {host.id: host for host in loads_by_node(placed.problem, placed.plan)}
    contents = contents_of(placed)
    boxes = [box_of(hosts[node], contents.get(node, {}), styles) for node in drawn]
    centres = _circle(boxes)
    left = min((x - WIDE / 2 for x, _ in centres), default=0.0)
    right = max((x + WIDE / 2 for x, _ in centres), default=0.0)
    top = min((y - box.height / 2 for (_, y), box in zip(centres, boxes, strict=True)), default=0.0)
    bottom = max((y + box.height / 2 for (_, y), box in zip(centres, boxes, strict=True)), default=0.0)
    title, summary = _head(placed)
    width = max(right - left + 2 * MARGIN, LEAST_WIDTH, 2 * MARGIN + LETTER * len(summary))
    shift = width / 2 - (left + right) / 2, HEAD + MARGIN - top
    places = [(x + shift[0], y + shift[1]) for x, y in centres]
    middle = shift
    foot = bottom + shift[1] + MARGIN
    seen = {node: Rectangle(x, y, box.height) for node, (x, y), box in zip(drawn, places, boxes, strict=True)}
    lines, labels, notes = _lines(_rates(placed, drawn), seen, middle, scale)
    if len(drawn) < len(placed.problem.cluster.nodes):
        notes.insert(0, f"{len(placed.problem.cluster.nodes) - len(drawn)} nodes are not drawn")
    legend_parts, height = legend(styles, foot, width)
    if notes:
        legend_parts.append(written(MARGIN, height + 4, "; ".join(notes), MUTED, 11))
        height += 20
    body = [
        written(MARGIN, 34, title, INK, 20, weight=600),
        written(MARGIN, 56, summary, MUTED, 12),
        *lines,
        *(part for (x, y), box in zip(places, boxes, strict=True) for part in box.at(x - WIDE / 2, y - box.height / 2)),
        *labels,
        *legend_parts,
    ]
    return _document(placed, width, height + 12, body)


def _document(placed: PlacedProblem, width: float, height: float, body: Sequence[str]) -> str:
    light = "".join(f".f-{c.name}{{fill:{c.light}}}.s-{c.name}{{stroke:{c.light}}}" for c in PALETTE)
    dark = "".join(f".f-{c.name}{{fill:{c.dark}}}.s-{c.name}{{stroke:{c.dark}}}" for c in PALETTE)
    fonts = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
    name = escape(f"{_TITLE}{placed.answer.scheduler}")
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="{fonts}" role="img" aria-label="{name}">'
    )
    return "\n".join(
        [
            opening,
            f"<title>{name}</title>",
            f"<style>svg{{color-scheme:light dark}}{light}@media (prefers-color-scheme:dark){{{dark}}}</style>",
            f'<rect width="100%" height="100%" {colour_attributes(GROUND)}/>',
            *body,
            "</svg>\n",
        ]
    )


def _head(placed: PlacedProblem) -> tuple[str, str]:
    """Return the title and a summary of the placement."""
    cost = placed.answer.cost
    rate = (
        f"{cost.inter_node_edges} pairs"
        if cost.inter_node_tuples_per_s is None
        else f"{cost.inter_node_tuples_per_s:.6g} tuples/s"
    )
    topologies = placed.answer.topologies
    states = ", ".join(
        f"{next(iter(topologies)) if len(topologies) == 1 else f'{count} topologies'} {status}"
        for status, count in Counter(answer.status for answer in topologies.values()).items()
    )
    waiting = sum(len(answer.unassigned) for answer in placed.answer.topologies.values())
    states += f" ({waiting} executors without a slot)" if waiting else ""
    summary = f"{rate} between nodes; {cost.nodes_used} nodes and {cost.slots_used} slots used; {states}"
    return placed.answer.scheduler, summary


def _drawn(placed: PlacedProblem) -> list[str]:
    """Return the nodes to draw, in cluster order."""
    executors: dict[str, int] = {}
    for placement in placed.plan.placements.values():
        for slot in placement.assignments.values():
            executors[slot.node] = executors.get(slot.node, 0) + 1
    nodes = [node.id for node in placed.problem.cluster.nodes]
    if len(nodes) > MOST_NODES:
        nodes = [node for node in nodes if node in executors]
    if len(nodes) > MOST_DRAWN:
        fullest = set(sorted(nodes, key=lambda node: -executors[node])[:MOST_DRAWN])
        nodes = [node for node in nodes if node in fullest]
    return nodes


def _rates(placed: PlacedProblem, nodes: Collection[str] | None = None) -> dict[tuple[str, str], float]:
    return between_nodes(placed.problem, placed.plan.placements, set(_drawn(placed) if nodes is None else nodes))


def _circle(boxes: Sequence[Box]) -> list[tuple[float, float]]:
    """Return the centres of the boxes on a circle around (0, 0), clockwise from the top, without overlap."""
    count = len(boxes)
    if count < 2:
        return [(0.0, 0.0)] * count
    diagonal = max(hypot(WIDE, box.height) for box in boxes) + 3 * GAP
    radius = round(max(1.15 * diagonal / (2 * sin(pi / count)), 0.75 * diagonal))
    first = pi / 2 if count == 2 else 0.0  # two are beside each other
    angles = [2 * pi * at / count - first for at in range(count)]
    return [(radius * sin(angle), -radius * cos(angle)) for angle in angles]


def _lines(
    rates: dict[tuple[str, str], float],
    places: dict[str, Rectangle],
    middle: tuple[float, float],
    scale: float,
) -> tuple[list[str], list[str], list[str]]:
    """Return the lines, thin ones first, their labels, and a note about lines that are not drawn."""
    heaviest = sorted(rates, key=lambda pair: -rates[pair])[:MOST_LINES]
    parts: list[str] = []
    labels: list[str] = []
    for one, other in reversed(heaviest):
        rate = rates[one, other]
        start, end = places[one], places[other]
        x1, y1, x2, y2 = start.x, start.y, end.x, end.y
        # Bent towards the centre, so that a line does not pass behind neighbouring boxes.
        cx = middle[0] + 0.35 * ((x1 + x2) / 2 - middle[0])
        cy = middle[1] + 0.35 * ((y1 + y2) / 2 - middle[1])
        thick = 0.75 + (THICKEST - 0.75) * rate / scale
        parts.append(
            f'<path d="M{x1:.1f} {y1:.1f}Q{cx:.1f} {cy:.1f} {x2:.1f} {y2:.1f}" {colour_attributes(None, MUTED)} '
            f'stroke-opacity="0.55" stroke-width="{thick:.2f}">'
            f"<title>{escape(one)} and {escape(other)}: {rate:.6g}</title></path>"
        )
        if len(rates) <= MOST_LABELS:
            curve = [_at(step / 40, (x1, y1), (cx, cy), (x2, y2)) for step in range(41)]
            visible = [point for point in curve if not start.covers(*point) and not end.covers(*point)]
            # Not in the middle of the line, where other lines cross it.
            x, y = visible[3 * len(visible) // 10] if visible else curve[20]
            text = f"{rate:.6g}"
            half = 4 + 3.4 * len(text)
            labels.append(
                f'<rect x="{x - half:.1f}" y="{y - 9:.1f}" width="{2 * half:.1f}" height="17" rx="4" '
                f"{colour_attributes(SHADE, GRID)}/>" + written(x, y + 4, text, INK, 11, anchor="middle")
            )
    hidden = len(rates) - len(heaviest)
    return parts, labels, [f"{hidden} thin lines are not drawn"] if hidden else []


def _at(t: float, start: Point, bend: Point, end: Point) -> Point:
    """Return the point of a quadratic curve at `t`, 0 to 1."""
    x, y = ((1 - t) ** 2 * start[axis] + 2 * t * (1 - t) * bend[axis] + t * t * end[axis] for axis in (0, 1))
    return x, y
