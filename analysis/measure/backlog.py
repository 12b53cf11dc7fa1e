"""Backlog: records that are due and not out of the topology, from what components have done and what waits for them.

A source on schedule says nothing about the topology behind it, whose queues hold thousands of rows. What waits at a
component is converted to records of the sources: of all rows that have been there, those that were processed stand for
as many of the records (selectivities cancel out), and only records that its senders have processed can have arrived.
"""

from collections.abc import Mapping
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from analysis.measure.covered import Intervals, amounts, by_worker, shares, weighted
from analysis.records.interval_metrics import Backlog, Latency

Edge = Literal["begin", "end", "last"]
"""Begin and end of an interval, and the last rows of the run."""

_EDGES: tuple[Edge, ...] = ("begin", "end", "last")

_NEVER_NS = 2**62
"""Later than all rows."""


class BacklogStage(NamedTuple):
    """A component: rows that it has processed, and rows that wait for it.

    Of a spout: records that it has emitted, and records that are due and have not been emitted.
    """

    done: float
    waiting: float


Flows = Mapping[tuple[str, str], float]
"""(sender, receiver), by component -> tuples, or any measure of how much of a receiver's input is a sender's."""


def passed(stages: Mapping[str, BacklogStage], flows: Flows) -> dict[str, float]:
    """Return component -> share (0..1) of the due records whose rows it has processed.

    >>> passed({"src": BacklogStage(90, 10), "split": Stage(45, 45), "count": Stage(400, 50)},
    ...        {("src", "split"): 90, ("split", "count"): 450})
    {'src': 0.9, 'split': 0.45, 'count': 0.4}
    """

    @cache
    def share(component: str) -> float:
        done, waiting = stages.get(component, BacklogStage(0, 0))
        own = done / (done + waiting) if waiting > 0 else 1.0
        senders = {sender: tuples for (sender, receiver), tuples in flows.items() if receiver == component and tuples}
        whole = sum(senders.values())
        return own * (sum(tuples * share(sender) for sender, tuples in senders.items()) / whole if whole else 1.0)

    return {component: share(component) for component in stages}


def rows_left(stages: Mapping[str, BacklogStage], flows: Flows) -> float:
    """Return the number of rows that components have yet to process, those included that are still to be emitted.

    >>> rows_left({"src": BacklogStage(100, 0), "split": Stage(50, 50), "count": Stage(450, 50)},
    ...           {("src", "split"): 100, ("split", "count"): 500})
    600.0
    """
    receivers = {receiver for _, receiver in flows}
    shares_of = passed(stages, flows)
    return float(
        sum(
            stage.done / shares_of[component] - stage.done if stage.done and shares_of[component] else stage.waiting
            for component, stage in stages.items()
            if component in receivers or not flows
        )
    )


class Records(NamedTuple):
    """Records of all sources at a time: due (emitted, without a schedule), and of these not out of the topology."""

    due: float
    pending: float


class Backlogs:
    """Records in the topology of a run at any time, from its traces.

    Executors of other engines do not say what waits for them; nothing is known of their backlogs.
    """

    def __init__(self, throughput: pa.Table, executors: pa.Table, channels: pa.Table) -> None:
        """Take three tables of a run, with `since_ns` in the first and the last."""
        self._throughput, self._executors, self._channels = throughput, executors, channels
        known = throughput.group_by(["executor", "role"]).aggregate([]).to_pylist()
        self._roles = {row["executor"]: row["role"] for row in known}

    def at(self, intervals: Intervals, edge: Edge) -> Records | None:
        """Return the records at an edge of an interval, or at the end of the run; None of another engine.

        Raises:
            RunError: no event marks the interval of a worker.
        """
        until = _Until(intervals, edge)
        levels = _levels(self._executors, until, "queued")
        if not self._roles or None in levels.values():
            return None
        rows = weighted(self._throughput, until)
        done, due = _sums(rows, "processed", "executor"), _levels(self._throughput, until, "due")
        emitted = _sums(rows, "emitted", "executor")
        stages: dict[str, BacklogStage] = {}
        for name, role in self._roles.items():
            if role == "spout":
                here, waiting = emitted.get(name, 0.0), 0.0
                if due.get(name) is not None:
                    waiting = max(0.0, (due[name] or 0) - here)
            else:
                here, waiting = done.get(name, 0.0), float(levels.get(name) or 0)
            before = stages.get(_component(name), BacklogStage(0.0, 0.0))
            stages[_component(name)] = BacklogStage(before.done + here, before.waiting + waiting)
        flows: dict[tuple[str, str], float] = {}
        sent = weighted(self._channels, until)
        for source in pc.unique(sent["source"]).to_pylist():
            mine = sent.filter(pc.equal(sent["source"], source))
            for target, tuples in _sums(mine, "tuples", "target").items():
                pair = _component(source), _component(target)
                flows[pair] = flows.get(pair, 0.0) + tuples
        sources = {_component(name) for name, role in self._roles.items() if role == "spout"}
        whole = sum(sum(stages[component]) for component in sources)
        # Nothing passes a component later than its senders; one that nothing has reached yet has no share of its own.
        return Records(whole, whole * (1 - min(passed(stages, flows).values())))

    def over(self, intervals: Intervals) -> Backlog | None:
        """Return the backlog of an interval; None if it is unknown."""
        begin, end = self.at(intervals, "begin"), self.at(intervals, "end")
        if begin is None or end is None:
            return None
        due = end.due - begin.due
        share = round(min(1.0, end.pending / due), 6) if due > 0 else None
        return Backlog(begin_records=round(begin.pending), end_records=round(end.pending), share=share)

    def with_censored(self, latency: Latency, samples: pa.Table, intervals: Intervals) -> Latency:
        """Return latencies with the number of samples that are missing: due in the interval, and not out at its end.

        Those that arrived while the topology drained are counted; of records that never came out, there are as many
        samples as of as many records that did.
        """
        late = sum(_late(rows, start, end) for rows, start, end in by_worker(samples, intervals))
        begin, end, last = (self.at(intervals, edge) for edge in _EDGES)
        if begin is None or end is None or last is None:
            return replace(latency, censored=round(late))
        out = last.due - last.pending
        never = max(0.0, end.due - max(begin.due, out))
        if not never:
            return replace(latency, censored=round(late))
        sampled = float(pc.sum(samples["count"]).as_py() or 0)
        return replace(latency, censored=round(late + sampled * never / out) if out > 0 and sampled else None)


class _Until(NamedTuple):
    """The time of a run up to an edge of an interval."""

    intervals: Intervals
    edge: Edge

    def of(self, node: str, worker: int) -> tuple[int, int]:
        """Return begin and end; see `Intervals`."""
        start, end = self.intervals.of(node, worker)
        return 0, {"begin": start, "end": end, "last": _NEVER_NS}[self.edge]


def _component(executor: str) -> str:
    return executor.rpartition("[")[0]


def _sums(rows: pa.Table, column: str, key: str) -> dict[str, float]:
    counted = rows.append_column("amount", amounts(rows, column, "weight")).group_by(key)
    return {row[key]: row["amount_sum"] or 0.0 for row in counted.aggregate([("amount", "sum")]).to_pylist()}


def _levels(rows: pa.Table, until: _Until, column: str) -> dict[str, int | None]:
    """Return executor -> a level in its last row until a time, whichever worker wrote it; nulls only without others."""
    last: dict[str, tuple[int, int | None]] = {}
    for mine, _, end in by_worker(rows, until):
        before = mine.filter(pc.less_equal(mine["t_ns"], end)).sort_by("t_ns").select(["executor", "t_ns", column])
        newest = before.group_by("executor", use_threads=False).aggregate([("t_ns", "last"), (column, "last")])
        for row in newest.to_pylist():
            age = end - row["t_ns_last"]
            if row["executor"] not in last or age < last[row["executor"]][0]:
                last[row["executor"]] = age, row[f"{column}_last"]
    return {name: level for name, (_, level) in last.items()}


def _late(rows: pa.Table, start: int, end: int) -> float:
    """Return how many samples of one worker arrived behind an interval and were due in it."""
    rows = rows.filter(pc.greater(rows["t_ns"], end))
    values, counts = rows["value_ns"].to_numpy(), rows["count"].to_numpy()
    since, until = np.minimum(rows["since_ns"].to_numpy(), rows["t_ns"].to_numpy() - 1), rows["t_ns"].to_numpy()
    share = shares(since, until, np.maximum(end, start + values), end + values)
    return float((share * counts).sum())
