"""Cost and gain of changes of a running topology, computed from bins of one second.

The expected throughput is the mean before a change, scaled with the tuples that were due. A topology has recovered in
the first of five bins in a row that reach 95 % of it with at most 1.1 times the mean latency before; bins as usual as
those before are good, too. Costs are summed from the first effect of the change to the recovery; the gain compares
the time on either side, cut at other events.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, hypot, sqrt
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from analysis.measure.run_series import RunSeries, SecondBins
from analysis.records.accounts import (
    ChangeCost,
    ChangeGain,
    ComponentScaling,
    Gained,
    Pauses,
    PayBack,
    PayBacks,
    RevisionCost,
    RunMeans,
    WindowMeans,
)
from analysis.records.file_types import ExecutorMove, Measured, Recovery, RevisionRecord
from inventory.cluster import Machine
from scheduler.online.observation import KeyFigures

COST_WINDOW_S = 20.0
"""Longest time before and after a change that is compared, in bins of one second, where the agenda gives none."""

FEWEST_S = 10
"""Shorter windows give no pay-back, and no means after the last change."""

IN_A_ROW = 5
ENOUGH_TUPLES, ENOUGH_LATENCY = 0.95, 1.1
"""Consecutive bins of a recovered topology; their share of the expected throughput, and of the mean latency before."""

USUAL = 2.0
"""Standard deviations of the bins before within which a bin is as usual: texts have lines of different lengths."""

MOST_DUE_CHANGE = 0.05
"""Largest relative difference of the tuples due before and after at which the two can be compared."""

TOGETHER_S = 1.0
"""Moves at most this far apart are one change: bins of one second cannot separate them."""


@dataclass(frozen=True)
class Span:
    """A change, from its first to its last effect.

    Attributes:
        number: as in `RevisionCost`.
        scripted: whether it was in the agenda's timeline.
        begun_s, ended_s: first and last effect, in seconds since the start of the sources.
        moves: moves that were made.
    """

    number: int
    scripted: bool
    begun_s: float
    ended_s: float
    moves: Sequence[ExecutorMove] = ()


def spans_of(
    moves: Sequence[ExecutorMove], revisions: Sequence[RevisionRecord], scalings: Sequence[ComponentScaling] = ()
) -> list[Span]:
    """Return the changes of a run in order of time: revisions that were begun, and moves and scalings of the timeline.

    Abandoned moves change nothing.
    """
    done = [move for move in moves if move.abandoned is None]
    spans: list[Span] = []
    for each in revisions:
        if each.begun_s is not None and each.ended_s is not None:
            its = [move for move in done if move.revision == each.number]
            spans.append(Span(each.number, False, each.begun_s, each.ended_s, its))
    changes: list[ExecutorMove | ComponentScaling] = [*done, *scalings]
    scripted = [change for change in changes if change.revision is None]
    return sorted([*spans, *_scripted(scripted)], key=lambda span: span.begun_s)


def _scripted(changes: Sequence[ExecutorMove | ComponentScaling]) -> list[Span]:
    """Return the changes that consist of these moves and scalings, in order of time."""
    groups: list[list[ExecutorMove | ComponentScaling]] = []
    ended_s = 0.0
    for change in sorted(changes, key=lambda change: change.at_s):
        if not groups or change.at_s > ended_s + TOGETHER_S:
            groups.append([])
            ended_s = change.at_s
        groups[-1].append(change)
        ended_s = max(ended_s, change.at_s + (change.pause_s or 0.0))
    return [
        Span(
            number,
            True,
            group[0].at_s,
            max(change.at_s + (change.pause_s or 0.0) for change in group),
            [change for change in group if isinstance(change, ExecutorMove)],
        )
        for number, group in enumerate(groups, 1)
    ]


def with_costs(
    measured: Measured,
    traces: Path,
    machines: Sequence[Machine],
    offsets: Mapping[str, int],
    start_ns: int,
    end_s: float,
    window_s: float = COST_WINDOW_S,
) -> Measured:
    """Return metrics with the cost of every change in them, and with means over time.

    Args:
        measured: metrics of the run, with its moves, revisions and recoveries.
        traces: folder of `<table>.parquet`.
        machines: machines of the run.
        offsets: node -> its monotonic clock minus the controller's, in nanoseconds.
        start_ns: start of the sources, on the controller's monotonic clock.
        end_s: end of the measured interval, in seconds since the start of the sources.
        window_s: longest time before and after a change that is compared.
    """
    series = RunSeries(traces, machines, offsets, start_ns, measured.latency_ms.bound or 0.0)
    costs, means = cost_of_changes(
        series, spans_of(measured.moves, measured.revisions, measured.scalings), measured.recoveries, end_s, window_s
    )
    own = {cost.number: cost for cost in costs if not cost.scripted}
    return replace(
        measured,
        revisions=[with_bill(each, own[each.number]) if each.number in own else each for each in measured.revisions],
        decisions=dict(sorted(Counter(each.outcome for each in measured.revisions).items())),
        revision_costs=costs,
        means=means,
    )


def with_bill(record: RevisionRecord, cost: RevisionCost) -> RevisionRecord:
    """Return a revision with what it cost and gained."""
    before, after = cost.before or WindowMeans(from_s=0, to_s=0), cost.after or WindowMeans(from_s=0, to_s=0)
    seen = record.before or KeyFigures(), record.after or KeyFigures()
    pauses = None
    if cost.pause_max_s is not None and cost.pause_sum_s is not None:
        pauses = Pauses(max=round(cost.pause_max_s * 1e3, 3), sum=round(cost.pause_sum_s * 1e3, 3))
    return replace(
        record,
        pause_ms=pauses,
        cost=ChangeCost(
            net_loss_tuples=cost.net_loss_tuples,
            latency_excess_tuple_s=cost.latency_excess_tuple_s,
            energy=cost.energy,
            recovered_s=cost.recovered_s,
            reason=cost.reason,
        ),
        gain=ChangeGain(
            cut=Gained(before=seen[0].cut, after=seen[1].cut, expects=record.expects.cut),
            hops=Gained(
                before=before.hops.get("inter_node"), after=after.hops.get("inter_node"), expects=record.expects.cut
            ),
            latency_p50_ms=Gained(before=before.latency_p50_ms, after=after.latency_p50_ms),
            latency_p95_ms=Gained(before=before.latency_p95_ms, after=after.latency_p95_ms),
            throughput_tuples_per_s=Gained(before=before.sink_tuples_per_s, after=after.sink_tuples_per_s),
            watts=Gained(before=before.watts, after=after.watts, expects=record.expects.watts),
            nodes=Gained(before=before.nodes, after=after.nodes),
        ),
        payback_s=cost.pay_back,
    )


def cost_of_changes(
    series: RunSeries,
    spans: Sequence[Span],
    recoveries: Sequence[Recovery],
    end_s: float,
    window_s: float = COST_WINDOW_S,
) -> tuple[list[RevisionCost], RunMeans]:
    """Return the cost of every change, and means over the whole run and after the last change.

    Args:
        series: measurements of the run.
        spans: changes, in order of time.
        recoveries: recoveries of the run, which cut windows.
        end_s: end of the measured interval, in seconds since the start of the sources.
        window_s: longest time before and after a change that is compared.
    """
    events = [(span.begun_s, span.ended_s) for span in spans]
    events += [(each.at_s, each.at_s + each.took_s) for each in recoveries]
    costs: list[RevisionCost] = []
    for span in spans:
        free_from = max((end for begin, end in events if begin < span.begun_s), default=0.0)
        if costs and costs[-1].recovered_s is not None:
            free_from = max(free_from, costs[-1].recovered_s)
        free_until = min((begin for begin, _ in events if begin > span.ended_s), default=end_s)
        free = min(free_from, span.begun_s), min(free_until, end_s)
        costs.append(_cost(series, span, free, max(1, floor(window_s))))
    last_s = (costs[-1].recovered_s or costs[-1].ended_s) if costs else end_s
    settled_s = max([last_s, *(end for _, end in events)])
    return costs, RunMeans(
        whole_run=series.means(0.0, end_s) if end_s > 0 else None,
        after_last_revision=series.means(settled_s, end_s) if end_s - settled_s >= FEWEST_S else None,
    )


def _cost(series: RunSeries, span: Span, free_s: tuple[float, float], window: int) -> RevisionCost:
    """Return the cost of one change; there are no other events between the two times `free_s`."""
    begun_s, (free_from_s, free_until_s) = span.begun_s, free_s
    moves = span.moves
    pauses = [move.pause_s for move in moves if move.pause_s is not None]
    known = RevisionCost(
        number=span.number,
        scripted=span.scripted,
        begun_s=round(begun_s, 6),
        ended_s=round(span.ended_s, 6),
        moves=len(moves),
        pause_max_s=max(pauses, default=None),
        pause_sum_s=round(sum(pauses), 6) if pauses else None,
        buffered_rows=sum(move.buffered_rows or 0 for move in moves) if moves else None,
        state_bytes=sum(move.state_bytes or 0 for move in moves) if moves else None,
        moving_cpu_ms=round(sum(move.cpu_ms or 0.0 for move in moves), 6) if moves else None,
    )
    length = min(window, floor(begun_s - free_from_s))
    if length < 1:
        return replace(known, reason="no whole second without another event before it")
    before = series.bins(begun_s - length, length)
    later = series.bins(begun_s, max(0, floor(free_until_s - begun_s)))
    means = series.means(begun_s - length, begun_s)
    recovered = recovery(later, before, first=ceil(span.ended_s - begun_s))
    if recovered is None:
        reason = f"throughput or latency did not return to their level before {free_until_s:.1f} s"
        return replace(known, reason=reason, before=means)
    during, after = later.part(0, recovered), later.part(recovered, recovered + window)
    recovered_s = begun_s + recovered
    dip, surplus = dip_and_surplus(during, before)
    excess = latency_excess(during, before)
    level = before.mean_latency_s or 0.0
    energy = series.energy_excess(begun_s - length, begun_s, recovered_s)
    return replace(
        known,
        recovered_s=round(recovered_s, 6),
        silent_s=float(np.count_nonzero(during.tuples == 0)),
        replayed_tuples=round(series.replayed(begun_s, recovered_s)),
        dip_tuples=round(dip, 3),
        surplus_tuples=round(surplus, 3),
        net_loss_tuples=round(dip - surplus, 3),
        net_loss_error_tuples=_rounded(sum_error(before.tuples - expected_tuples(before, before), recovered)),
        latency_excess_tuple_s=_rounded(excess),
        latency_error_tuple_s=_rounded(sum_error((before.latency_s - level) * before.tuples, recovered)),
        energy=energy,
        before=means,
        after=series.means(recovered_s, recovered_s + len(after)),
        pay_back=pay_backs(before, after, dip - surplus, excess, None if energy is None else energy.joules),
    )


def expected_tuples(bins: SecondBins, before: SecondBins) -> NDArray[np.float64]:
    """Return the expected tuples of every bin: the mean before, scaled with what was due."""
    mean = float(before.tuples.mean())
    if bins.due is None or before.due is None or not before.due.sum():
        return np.full(len(bins), mean)
    scaled: NDArray[np.float64] = bins.due / float(before.due.mean()) * mean
    return scaled


def recovery(later: SecondBins, before: SecondBins, first: int = 0) -> int | None:
    """Return the first of five bins in a row that have recovered, from bin `first` on; None if there are none."""
    level, usual = before.mean_latency_s, expected_tuples(before, before)
    ratios = before.tuples[usual > 0] / usual[usual > 0]
    good = later.tuples >= min(ENOUGH_TUPLES, 1 - USUAL * _deviation(ratios)) * expected_tuples(later, before)
    if level is not None:
        # A bin without samples does not contradict.
        good &= ~(later.latency_s > max(ENOUGH_LATENCY * level, level + USUAL * _deviation(before.latency_s)))
    for at in range(first, len(good) - IN_A_ROW + 1):
        if good[at : at + IN_A_ROW].all():
            return at
    return None


def dip_and_surplus(during: SecondBins, before: SecondBins) -> tuple[float, float]:
    """Return the tuples missing against the expected ones, and those beyond them, each bin by itself."""
    missing = expected_tuples(during, before) - during.tuples
    return float(missing[missing > 0].sum()), float(-missing[missing < 0].sum())


def latency_excess(during: SecondBins, before: SecondBins) -> float | None:
    """Return the latency beyond the mean before, summed over all tuples, in tuple seconds; None without samples."""
    level = before.mean_latency_s
    total = float(during.tuples.sum())
    if level is None:
        return None
    sampled = ~np.isnan(during.latency_s)
    tuples = during.tuples[sampled]
    if not tuples.sum():
        return None if total else 0.0
    # Tuples of bins without samples count as late as the others.
    return float(((during.latency_s[sampled] - level) * tuples).sum() * total / tuples.sum())


def sum_error(values: NDArray[np.float64], count: int) -> float | None:
    """Return the standard error of a sum of differences to the mean before; None with fewer than two bins before.

    Args:
        values: the quantity in bins before.
        count: number of bins that are summed.
    """
    known = values[~np.isnan(values)]
    if len(known) < 2:
        return None
    # That of the bins themselves, and that of the mean.
    return _deviation(known) * sqrt(count + count**2 / len(known))


def pay_backs(
    before: SecondBins, after: SecondBins, net_loss: float, latency_excess: float | None, joules: float | None
) -> PayBacks:
    """Return when the gain makes up for the cost.

    Args:
        before, after: bins before the change and from the recovery on.
        net_loss: lost tuples.
        latency_excess: tuple seconds; None when unknown.
        joules: excess energy; None when unknown.
    """
    latency: PayBack | None = None
    energy: PayBack | None = None
    comparable = min(len(before), len(after)) >= FEWEST_S and _same_due(before, after)
    if latency_excess is not None:
        latency = "unknown"
    if joules is not None:
        energy = "unknown"
    if not comparable:
        return PayBacks(latency=latency, throughput="unknown", energy=energy)
    beyond = after.tuples - expected_tuples(after, before)
    error = _standard_error(before.tuples - expected_tuples(before, before), beyond)
    throughput = pay_back(net_loss, float(beyond.mean()), error)
    old, new = before.mean_latency_s, after.mean_latency_s
    if latency_excess is not None and old is not None and new is not None:
        rate = float(after.tuples.mean())
        error = rate * _standard_error(before.latency_s, after.latency_s)
        latency = pay_back(latency_excess, rate * (old - new), error)
    if joules is not None and before.watts is not None and after.watts is not None:
        saved = float(before.watts.mean() - after.watts.mean())
        energy = pay_back(joules, saved, _standard_error(before.watts, after.watts))
    return PayBacks(latency=latency, throughput=throughput, energy=energy)


def pay_back(cost: float, gain_per_s: float, error: float) -> PayBack:
    """Return the seconds after which a gain makes up for a cost; 0 if there is none.

    Args:
        cost: in any unit.
        gain_per_s: in the same unit per second.
        error: standard error of the gain; below two of them, gain or loss is unknown.
    """
    if abs(gain_per_s) < 2 * error:
        return "unknown"
    if gain_per_s <= 0:
        return "never"
    return round(max(0.0, cost) / gain_per_s, 3)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _same_due(before: SecondBins, after: SecondBins) -> bool:
    if before.due is None or after.due is None:
        return True
    old, new = float(before.due.mean()), float(after.due.mean())
    return abs(new - old) <= MOST_DUE_CHANGE * old


def _deviation(values: NDArray[np.float64]) -> float:
    """Return the standard deviation; bins without a value are left out, and 0 stands for fewer than two."""
    known = values[~np.isnan(values)]
    return float(known.std(ddof=1)) if len(known) > 1 else 0.0


def _standard_error(*windows: NDArray[np.float64]) -> float:
    """Return the standard error of a difference of means."""
    return hypot(*(_deviation(window) / sqrt(max(1, int(np.count_nonzero(~np.isnan(window))))) for window in windows))
