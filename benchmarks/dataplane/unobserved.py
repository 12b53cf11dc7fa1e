"""Switches a worker's own observation off, to see what it costs; the name of a component's workload says what."""

from collections.abc import Sequence
from typing import Any, Literal

from agents.trace import TraceWriter
from agents.worker.executors import executor
from agents.worker.process import event_loop

Observed = Literal["all", "no samples", "nothing"]

_NEVER_NS = 3600 * 1_000_000_000


def observe(what: Observed) -> None:
    """Leave out, in this process and for good, latency samples, or these and all rows of traces."""
    if what == "all":
        return
    executor.Sampler.sampled = _none  # type: ignore[method-assign]
    if what == "nothing":
        event_loop.REPORT_NS = _NEVER_NS
        TraceWriter.add = _nothing  # type: ignore[method-assign]


def _none(_sampler: object, _first: int, _count: int) -> list[int]:
    return []


def _nothing(_writer: object, _table: str, _t_ns: int, *_values: Sequence[Any]) -> None:
    return
