"""Draw the pictures of docs/architecture.md and docs/online.md: rooms, and the lives of a run, a tuple and others.

    .venv/bin/python docs/tools/diagrams.py

Boxes lie on a grid and arrows join neighbours, so that a picture is a list of words.
"""

from html import escape
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "architecture"
WIDTH, HEIGHT, GAP_X, GAP_Y, EDGE = 172, 58, 44, 40, 16
INK, FAINT, BLUE, PALE = "#1d2830", "#5b6b76", "#1f5f8b", "#f3f6f8"


class Box(NamedTuple):
    """A box at a column and a row of the grid, `wide` columns wide."""

    name: str
    text: str
    column: float
    row: float
    wide: float = 1


class Arrow(NamedTuple):
    """An arrow from one box to another."""

    source: str
    target: str


def drawing(title: str, boxes: list[Box], arrows: list[Arrow]) -> str:
    """Return the SVG of boxes and arrows."""
    at = {box.name: box for box in boxes}
    width = 2 * EDGE + max(_x(box) + _width(box) for box in boxes)
    height = 2 * EDGE + max(_y(box) + HEIGHT for box in boxes)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'font-family="system-ui, sans-serif" font-size="13" role="img" aria-label="{escape(title)}">'
        ),
        (
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0 8 4 0 8z" fill="{BLUE}"/></marker></defs>'
        ),
        f'<rect width="{width:.0f}" height="{height:.0f}" rx="8" fill="#ffffff"/>',
    ]
    for box in boxes:
        x, y = EDGE + _x(box), EDGE + _y(box)
        middle = x + _width(box) / 2
        parts.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{_width(box):.0f}" height="{HEIGHT}" rx="6" fill="{PALE}" '
            f'stroke="{BLUE}" stroke-width="1.5"/>'
            f'<text x="{middle:.0f}" y="{y + 24:.0f}" text-anchor="middle" font-weight="600" fill="{INK}">'
            f"{escape(box.name)}</text>"
            f'<text x="{middle:.0f}" y="{y + 43:.0f}" text-anchor="middle" font-size="11" fill="{FAINT}">'
            f"{escape(box.text)}</text>"
        )
    parts += [_arrow(at[arrow.source], at[arrow.target]) for arrow in arrows]
    return "\n".join([*parts, "</svg>\n"])


def _arrow(source: Box, target: Box) -> str:
    sx, sy, tx, ty = _x(source), _y(source), _x(target), _y(target)
    if sy == ty:
        y, right = EDGE + sy + HEIGHT / 2, tx > sx
        x1 = EDGE + (sx + _width(source) if right else sx)
        x2 = EDGE + (tx - 2 if right else tx + _width(target) + 2)
        y1 = y2 = y
    else:
        low, high = max(sx, tx), min(sx + _width(source), tx + _width(target))
        x1 = EDGE + ((low + high) / 2 if low < high else sx + _width(source) / 2)
        x2 = x1 if low < high else EDGE + tx + _width(target) / 2
        down = ty > sy
        y1 = EDGE + (sy + HEIGHT if down else sy)
        y2 = EDGE + (ty - 2 if down else ty + HEIGHT + 2)
    return f'<path d="M{x1:.0f} {y1:.0f}L{x2:.0f} {y2:.0f}" stroke="{BLUE}" stroke-width="2" marker-end="url(#tip)"/>'


def _x(box: Box) -> float:
    return box.column * (WIDTH + GAP_X)


def _y(box: Box) -> float:
    return box.row * (HEIGHT + GAP_Y)


def _width(box: Box) -> float:
    return box.wide * WIDTH + (box.wide - 1) * GAP_X


ROOMS = (
    "Rooms of the code; each imports only from those below it",
    [
        Box("campaign", "agenda, runs, results, commands", 0, 0, 3),
        Box("controller", "one run under way; how nodes are reached", 0, 1, 3),
        Box("analysis", "Spark job, figures, report", 2, 2),
        Box("agents", "node agent, workers, sensors, power, CPUs", 0, 2, 2),
        Box("scheduler", "who runs where", 0, 3, 3),
        Box("workloads", "topologies, operators, data, rates", 0, 4, 3),
        Box("inventory", "the cluster, documents, errors", 0, 5, 3),
    ],
    [
        Arrow("campaign", "controller"),
        Arrow("controller", "agents"),
        Arrow("controller", "analysis"),
        Arrow("agents", "scheduler"),
        Arrow("analysis", "scheduler"),
        Arrow("scheduler", "workloads"),
        Arrow("workloads", "inventory"),
    ],
)
RUN = (
    "The life of a run: agenda, placement, start, measured interval, drain, verification, report",
    [
        Box("agenda", "read and checked once", 0, 0),
        Box("scheduler", "placement, checked", 1, 0),
        Box("backend", "agents on all nodes", 2, 0),
        Box("workers", "start, connect, go", 3, 0),
        Box("warm-up", "sources follow schedules", 3, 1),
        Box("measured interval", "sensors, traces", 2, 1),
        Box("drain", "sources end, queues empty", 1, 1),
        Box("verification", "answer = reference?", 0, 1),
        Box("collection", "traces to Parquet", 0, 2),
        Box("run.json", "status, figures, reasons", 1, 2),
        Box("report", "all runs, by Spark", 2, 2),
    ],
    [
        Arrow("agenda", "scheduler"),
        Arrow("scheduler", "backend"),
        Arrow("backend", "workers"),
        Arrow("workers", "warm-up"),
        Arrow("warm-up", "measured interval"),
        Arrow("measured interval", "drain"),
        Arrow("drain", "verification"),
        Arrow("verification", "collection"),
        Arrow("collection", "run.json"),
        Arrow("run.json", "report"),
    ],
)
TUPLE = (
    "The life of a tuple: from the spout's schedule over a grouping and a channel to the sink",
    [
        Box("schedule", "when a record is due", 0, 0),
        Box("spout", "next_batch, stamps", 1, 0),
        Box("grouping", "which executor gets it", 2, 0),
        Box("local channel", "same worker: a queue", 3, 0),
        Box("remote channel", "credit of the receiver", 2, 1),
        Box("codec, frame", "rows to bytes", 1, 1),
        Box("link", "TCP, authenticated", 1, 2),
        Box("frame, codec", "checked, bytes to rows", 2, 2),
        Box("input gate", "waits at barriers", 3, 2),
        Box("bolt", "process, emit again", 3, 3),
        Box("sink", "counts, latency, answer", 2, 3),
    ],
    [
        Arrow("schedule", "spout"),
        Arrow("spout", "grouping"),
        Arrow("grouping", "local channel"),
        Arrow("grouping", "remote channel"),
        Arrow("remote channel", "codec, frame"),
        Arrow("codec, frame", "link"),
        Arrow("link", "frame, codec"),
        Arrow("frame, codec", "input gate"),
        Arrow("local channel", "input gate"),
        Arrow("input gate", "bolt"),
        Arrow("bolt", "sink"),
    ],
)
MEASUREMENT = (
    "The life of a measurement: sensor, trace file, Parquet, run.json and report",
    [
        Box("sensor", "a reading, every second", 0, 0),
        Box("trace writer", "Arrow stream, per process", 1, 0),
        Box("collection", "one Parquet per table", 2, 0),
        Box("worker", "counters, histograms", 1, 1),
        Box("clock", "offset, bound", 2, 2),
        Box("run metrics", "interval only, run.json", 2, 1),
        Box("Spark job", "tables over all runs", 3, 0),
        Box("report", "figures, intervals, page", 3, 1),
    ],
    [
        Arrow("sensor", "trace writer"),
        Arrow("worker", "trace writer"),
        Arrow("trace writer", "collection"),
        Arrow("clock", "run metrics"),
        Arrow("collection", "run metrics"),
        Arrow("collection", "Spark job"),
        Arrow("run metrics", "report"),
        Arrow("Spark job", "report"),
    ],
)
ONLINE = (
    "An online run: reports become observations, answers become revisions, which are carried out at barriers",
    [
        Box("workers, agents", "totals, every second", 0, 0),
        Box("monitor", "windows, loads, rates", 1, 0),
        Box("observation", "one complete window", 2, 0),
        Box("rescheduling", "when to ask, what counts", 2, 1),
        Box("scheduler", "a process of its own", 3, 1),
        Box("decisions.jsonl", "questions and answers", 3, 2),
        Box("moves", "at barriers; clocks", 1, 1),
        Box("topology", "goes on meanwhile", 0, 1),
        Box("traces", "decision, revision, move", 1, 2),
        Box("run.json", "revisions, their cost", 2, 2),
    ],
    [
        Arrow("workers, agents", "monitor"),
        Arrow("monitor", "observation"),
        Arrow("observation", "rescheduling"),
        Arrow("rescheduling", "scheduler"),
        Arrow("scheduler", "rescheduling"),
        Arrow("scheduler", "decisions.jsonl"),
        Arrow("rescheduling", "moves"),
        Arrow("moves", "topology"),
        Arrow("topology", "workers, agents"),
        Arrow("moves", "traces"),
        Arrow("traces", "run.json"),
    ],
)
PICTURES = {"rooms": ROOMS, "run": RUN, "tuple": TUPLE, "measurement": MEASUREMENT, "online": ONLINE}


def main() -> None:
    """Write all pictures."""
    for name, (title, boxes, arrows) in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(drawing(title, boxes, arrows))


if __name__ == "__main__":
    main()
