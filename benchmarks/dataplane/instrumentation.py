"""Switch off a worker's instrumentation, to measure its overhead; used by the workload `running-count`."""

from typing import Any, Literal

from agents.trace import TraceWriter
from agents.worker.executors import executor
from agents.worker.process import event_loop

Instrumentation = Literal["all", "no samples", "none"]

_NEVER_NS = 3600 * 1_000_000_000


def set_instrumentation(level: Instrumentation) -> None:
    """Switch off latency samples, or with "none" also reports and trace rows, for the lifetime of this process."""
    if level == "all":
        return
    executor.LatencySampler.sampled = _no_samples  # type: ignore[method-assign]
    if level == "none":
        event_loop.REPORT_NS = _NEVER_NS
        TraceWriter.add = _discard_row  # type: ignore[method-assign]


def _no_samples(self: executor.LatencySampler, first: int, count: int) -> list[int]:
    return []


def _discard_row(self: TraceWriter, table: str, t_ns: int, *values: Any) -> None:
    return
