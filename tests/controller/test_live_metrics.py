"""Rates from totals: between the last two reports of a worker in the current epoch, until it stops reporting."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol import Progress, Sent, Slot, Vitals, Work
from controller.coordinator.live_metrics import SILENT_S, ExecutorFlow, HopFlow, LiveMetrics, LiveSample, NodeFlow

HERE, THERE = Slot("n1", 0), Slot("n2", 0)
S = 10**9


def bolt(processed: int, *, emitted: int = 0, queued: int = 0, busy_ns: int = 0, blocked_ns: int = 0) -> Work:
    return Work(emitted, processed, queued, busy_ns, blocked_ns)


def report(at_s: float, executors: Mapping[str, Work] | None = None, **more: Any) -> Progress:
    values = {"epoch": 1, "slot": 0, "emitted": 0, "sunk": 0, **more}
    return Progress(at_ns=round(at_s * S), executors=executors or {}, **values)


def executors(flow: LiveMetrics, now: float) -> dict[str, ExecutorFlow]:
    return {entry.executor: entry for entry in flow.document(now).executors}


def test_rates_are_unknown_before_the_second_report() -> None:
    flow = LiveMetrics()
    assert flow.sample(0) == LiveSample(None, None)
    flow.record("n1", report(10, {"a[0]": bolt(500, queued=7)}, sunk=500, latency_p50_ns=1000), 0)
    assert flow.sample(0) == LiveSample(None, None)
    (first,) = flow.document(0).executors
    assert first == ExecutorFlow("a[0]", "n1", 0, None, None, 7, None, None, None)


def test_rates_are_those_of_the_last_second_of_the_workers_own_clock() -> None:
    flow = LiveMetrics()
    spout = Work(100, None, None, 0, 0, 5)
    flow.record("n1", report(10, {"s[0]": spout, "a[0]": bolt(50)}, sunk=50), 0)
    spout = Work(300, None, None, S // 4, S // 2, 2_500_000)
    flow.record("n1", report(12, {"s[0]": spout, "a[0]": bolt(70, emitted=8, queued=3, busy_ns=S)}, sunk=70), 100)
    found = executors(flow, 100)
    assert found["s[0]"] == ExecutorFlow("s[0]", "n1", 0, None, 100.0, None, 0.125, 0.25, 0.0025)
    assert found["a[0]"] == ExecutorFlow("a[0]", "n1", 0, 10.0, 4.0, 3, 0.5, 0.0, None)
    assert flow.document(100).late_s == 0.0025
    assert flow.sample(100).tuples_per_s == 10


def test_rates_are_not_computed_from_two_reports_in_quick_succession() -> None:
    flow = LiveMetrics()
    for at_s, count in ((10, 0), (11, 100), (11.01, 100)):
        flow.record("n1", report(at_s, {"a[0]": bolt(count)}), 0)
    assert executors(flow, 0)["a[0]"].in_per_s == pytest.approx(100 / 1.01, abs=0.1)


def test_rates_of_a_worker_that_stops_reporting_are_unknown() -> None:
    flow = LiveMetrics()
    for place in (HERE, THERE):
        for at_s in (10, 11):
            sent = (Sent("inter_node", "n3", at_s, at_s),)
            work = bolt(at_s, queued=1)
            flow.record(place.node, report(at_s, {f"a[{place.node}]": work}, sunk=at_s * 10, sent=sent), at_s)
        flow.record(place.node, Vitals(epoch=1, cores=0.5, workers={0: 0.25}), 11)
    later = 11 + SILENT_S + 1
    assert flow.sample(later) == LiveSample(None, None)
    flow.record("n2", report(20, {"a[n2]": bolt(20)}, sunk=200), later)
    found = executors(flow, later)
    assert found["a[n1]"] == ExecutorFlow("a[n1]", "n1", 0, None, None, None, None, None, None)
    assert found["a[n2]"].in_per_s == 1.0
    assert flow.document(later).nodes == (NodeFlow("n1", None, {}), NodeFlow("n2", None, {}))
    assert not [entry for entry in flow.document(later).traffic if entry.source == "n1"]


def test_a_new_epoch_starts_from_nothing_and_late_reports_of_the_old_one_are_ignored() -> None:
    flow = LiveMetrics()
    for at_s in (10, 11):
        flow.record("n1", report(at_s, {"a[0]": bolt(1000)}), 0)
    flow.record("n2", report(12, {"a[0]": bolt(5)}, epoch=2), 0)
    flow.record("n1", report(12, {"a[0]": bolt(1100)}), 0)
    flow.record("n1", Vitals(epoch=1, cores=1.0), 0)
    (entry,) = flow.document(0).executors
    assert (entry.node, entry.in_per_s) == ("n2", None)
    assert flow.document(0).nodes == ()


def test_an_executor_that_moves_is_shown_where_it_is() -> None:
    flow = LiveMetrics()
    for at_s in (10, 11):
        flow.record("n1", report(at_s, {"a[0]": bolt(at_s * 100), "b[0]": bolt(0)}), 0)
        flow.record("n2", report(at_s, {"c[0]": bolt(0)}), 0)
    flow.record("n2", report(12, {"a[0]": bolt(40), "c[0]": bolt(0)}), 1)
    assert [entry.node for entry in flow.document(1).executors if entry.executor == "a[0]"] == ["n2"]
    flow.record("n1", report(12, {"b[0]": bolt(0)}), 1)
    found = executors(flow, 0)
    assert (found["a[0]"].node, found["a[0]"].in_per_s) == ("n2", None)
    flow.record("n2", report(13, {"a[0]": bolt(140), "c[0]": bolt(0)}), 0)
    assert executors(flow, 0)["a[0]"].in_per_s == 100.0


def test_traffic_is_added_up_over_the_workers_of_a_node() -> None:
    flow = LiveMetrics()
    for at_s, part in ((10, 0), (12, 1)):
        near = Sent("intra_worker", "n1", 20 * part, None)
        flow.record("n1", report(at_s, sent=(Sent("inter_node", "n2", 100 * part, 4000 * part), near)), 0)
        # The second worker has sent nothing before.
        flow.record("n1", report(at_s, slot=1, sent=(Sent("inter_node", "n2", 50, 600),) * part), 0)
    assert flow.document(0).traffic == (
        HopFlow(hop="inter_node", source="n1", target="n2", tuples_per_s=75.0, bytes_per_s=2300.0),
        HopFlow(hop="intra_worker", source="n1", target="n1", tuples_per_s=10.0, bytes_per_s=None),
    )


@given(st.lists(st.tuples(st.floats(0.6, 3), st.integers(0, 10_000)), min_size=2, max_size=20))
def test_rates_times_their_seconds_add_up_to_the_totals(steps: Iterable[tuple[float, int]]) -> None:
    flow, at_s, total, added = LiveMetrics(), 0.0, 0, 0.0
    flow.record("n1", report(at_s, {"a[0]": bolt(0)}), 0)
    for seconds, count in steps:
        at_s, total = at_s + seconds, total + count
        flow.record("n1", report(at_s, {"a[0]": bolt(total)}), 0)
        added += (executors(flow, 0)["a[0]"].in_per_s or 0.0) * seconds
    assert added == pytest.approx(total, abs=0.05 * 3 * 20 + 1e-6 * total)
