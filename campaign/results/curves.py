"""Curves of cumulative quantities, built from rows of differences."""

from collections.abc import Iterable
from itertools import pairwise

from agents.power.curve import Curve
from workloads.rates import NS


def curve_of_differences(rows: Iterable[tuple[int, int | None, float]]) -> Curve:
    """Return the curve for rows (time, begin of the interval, amount), in order of time.

    If the begin is None, the interval begins at the previous row, or one second before the first row.
    """
    level = 0.0
    last_ns: int | None = None
    points: list[tuple[int, float]] = []
    for t_ns, since_ns, added in rows:
        begin_ns = max(since_ns if since_ns is not None else last_ns or t_ns - NS, last_ns or 0)
        if last_ns is None or begin_ns > last_ns:
            points.append((begin_ns, level))
        level += added
        points.append((t_ns, level))
        last_ns = t_ns
    return Curve(points)


def steps(start_ns: int, end_ns: int, moments: Iterable[int]) -> list[tuple[int, int]]:
    """Return the interval, divided at all moments inside it."""
    cuts = sorted({moment for moment in moments if start_ns < moment < end_ns})
    return list(pairwise([start_ns, *cuts, end_ns])) if end_ns > start_ns else []
