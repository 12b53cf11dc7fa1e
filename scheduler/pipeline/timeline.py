"""Pipelined execution of pipeline-based linear scheduling (Algorithm 3): transfers and stalls per time slot.

Executors of one component on one node are interchangeable, so stream parts are counted per component and node, not per
executor pair.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

MOST_CELLS = 2_000_000
MOST_WORK = 200_000_000
"""Maximum number of cells of a table, and of additions to compute its stalls."""


@dataclass(frozen=True)
class Flow:
    """Directed edges between components, by number, and the stage of each edge.

    Attributes:
        edges: (source, destination), without repetition.
        level: component -> edges on the longest path that leads to it; an edge's stage is its source's level.
        stages: number of stages, 0 without edges.
    """

    edges: tuple[tuple[int, int], ...]
    level: tuple[int, ...]
    stages: int


def flow_of(components: int, links: Iterable[tuple[int, int]]) -> Flow:
    """Return the `components` components ordered by the acyclic `links` (source, destination) between them."""
    edges = tuple(dict.fromkeys(links))
    inputs: dict[int, list[int]] = {component: [] for component in range(components)}
    for source, destination in edges:
        inputs[destination].append(source)
    level = [0] * components
    for component in TopologicalSorter(inputs).static_order():
        level[component] = max((level[source] + 1 for source in inputs[component]), default=0)
    return Flow(edges, tuple(level), 1 + max((level[source] for source, _ in edges), default=-1))


def round_timeline(
    flow: Flow, counts: Sequence[Mapping[int, int]], schedule: Sequence[Sequence[int]]
) -> list[dict[str, Any]] | None:
    """Return one round of all stages: per slot its start, the step in every stage, and the stall, in units of h.

    Args:
        flow: the edges.
        counts: component -> {node: its executors there}, nodes without any left out.
        schedule: step -> sender -> receiver, as many steps as nodes; in a step all receivers are different.

    Returns:
        `{slot, start, steps, stall}` for each of the P + stages - 1 slots, a step None while the stage is
        still empty; nothing without edges. None when the table would have more than `MOST_CELLS` cells or take
        more than `MOST_WORK` additions.
    """
    if not flow.stages:
        return []
    period = len(schedule)
    slots = period + flow.stages - 1
    groups = _receivers(flow)
    work = sum(len(inputs) * min(period, sum(len(counts[v]) for v in group)) * period for inputs, group in groups)
    if slots * flow.stages > MOST_CELLS or work > MOST_WORK:
        return None
    parts = _most_parts(flow, groups, counts, schedule, slots)
    table: list[dict[str, Any]] = []
    start = 0
    for slot in range(slots):
        steps = [(slot - stage) % period if slot >= stage else None for stage in range(flow.stages)]
        stall = max(0, parts[slot] - 1)
        table.append({"slot": slot, "start": start, "steps": steps, "stall": stall})
        start += 1 + stall
    return table


Inputs = tuple[tuple[int, tuple[int, ...]], ...]
"""(level, components of that level), levels ascending."""


def _receivers(flow: Flow) -> list[tuple[Inputs, list[int]]]:
    """Return components with inputs, grouped by equal inputs.

    Components of a group receive the same number of parts per node.
    """
    sources: dict[int, list[int]] = {}
    for source, destination in flow.edges:
        sources.setdefault(destination, []).append(source)
    groups: dict[tuple[int, ...], list[int]] = {}
    for destination, from_ in sources.items():
        groups.setdefault(tuple(sorted(from_)), []).append(destination)
    receivers: list[tuple[Inputs, list[int]]] = []
    for inputs, destinations in groups.items():
        by_level: dict[int, list[int]] = {}
        for source in inputs:
            by_level.setdefault(flow.level[source], []).append(source)
        receivers.append((tuple((level, tuple(by_level[level])) for level in sorted(by_level)), destinations))
    return receivers


def _most_parts(
    flow: Flow,
    groups: Sequence[tuple[Inputs, Sequence[int]]],
    counts: Sequence[Mapping[int, int]],
    schedule: Sequence[Sequence[int]],
    slots: int,
) -> list[int]:
    """Return slot -> maximum number of stream parts that one executor receives in it."""
    import numpy as np

    period = len(schedule)
    nodes_of_row = np.broadcast_to(np.arange(period), (period, period))
    sender = np.empty((period, period), dtype=np.int64)  # by step and receiver
    np.put_along_axis(sender, np.array(schedule, dtype=np.int64), nodes_of_row, axis=1)
    most = np.zeros(slots, dtype=np.int64)
    # From its start level on, a group whose stages all run repeats every round; such groups are merged by level.
    endless: dict[int, Integers] = {}
    for inputs, destinations in groups:
        nodes = sorted({node for destination in destinations for node in counts[destination]})
        if not nodes:
            continue
        from_ = sender if len(nodes) == period else sender[:, nodes]
        total = np.zeros((period, len(nodes)), dtype=np.int64)
        for at, (level, sources) in enumerate(inputs):
            sent = np.zeros(period, dtype=np.int64)
            for source in sources:
                for node, executors in counts[source].items():
                    sent[node] += executors
            # Row r: slots whose number is r modulo the period, in which this level is at step r - level.
            received, shift = np.take(sent, from_), level % period
            total[shift:] += received[: period - shift]
            total[:shift] += received[period - shift :]
            peak = total.max(axis=1)
            if at + 1 < len(inputs):
                span = np.arange(level, min(inputs[at + 1][0], slots))
                most[span] = np.maximum(most[span], peak[span % period])
            else:
                endless[level] = np.maximum(endless[level], peak) if level in endless else peak
    running = np.zeros(period, dtype=np.int64)
    for level in range(flow.stages):
        if level in endless:
            running = np.maximum(running, endless[level])
        span = np.arange(level, level + 1 if level + 1 < flow.stages else slots)
        most[span] = np.maximum(most[span], running[span % period])
    parts: list[int] = most.tolist()
    return parts
