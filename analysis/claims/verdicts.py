"""Claims of papers, and verdicts on them by results.

A paper's claim is a ratio of two schedulers in one metric. Schedulers are compared within repetitions, like everywhere
in reports; what a verdict needs beyond the interval are the conditions under which the claim was made.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct

from analysis.claims.used import Used, node_spread, used_by
from analysis.records.campaign import Campaign, Run
from analysis.records.interval_metrics import IntervalMetrics
from analysis.statistics.comparison import compare
from analysis.statistics.intervals import ENOUGH, ConfidenceInterval

Verdict = Literal["confirmed", "direction only", "refuted", "not visible here", "not testable", "pending"]

CONFIRMED: Verdict = "confirmed"
DIRECTION: Verdict = "direction only"
REFUTED: Verdict = "refuted"
NOT_VISIBLE: Verdict = "not visible here"
NOT_TESTABLE: Verdict = "not testable"
PENDING: Verdict = "pending"

EQUAL_LOW, EQUAL_HIGH = 0.9, 1.1
"""Ratios between which two schedulers are equal."""


class ClaimConditions(Struct, frozen=True, forbid_unknown_fields=True):
    """Conditions of a claim; without them it cannot be refuted.

    Attributes:
        load: smallest offered rate, as a share of the rate that the rival sustains; saturated sources offer more.
        equal_nodes: both schedulers use equally many nodes.
    """

    load: Annotated[float, Meta(gt=0, le=1)] | None = None
    equal_nodes: bool = False


class Claim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A claim of a paper.

    Attributes:
        id: unique among all claims.
        says: the claim as a sentence.
        source: figure or table of the paper.
        experiment: name of the agendas that test it, without `-small` or `-lab`; None if there is none.
        workload: label of the workload in the agenda.
        factors: values of the agenda's factors.
        window: name of a window of the agenda; None: the whole measured interval.
        metric: what is compared, see `METRICS`.
        ours, rival: labels of the two schedulers.
        ratio: how many times better `ours` is: 1.25 is 25 % more throughput, or a latency of 1 / 1.25; 1: equal.
        exactly: value of the metric that a placement alone has under `ours`; such a claim needs no runs.
        conditions: what must hold for a refutation.
        untestable: why no agenda can test it.
    """

    id: Annotated[str, Meta(min_length=1)]
    says: str
    source: str
    experiment: str | None = None
    workload: str = ""
    factors: Mapping[str, Any] = {}
    window: str | None = None
    metric: str = ""
    ours: str = ""
    rival: str = ""
    ratio: Annotated[float, Meta(ge=1)] | None = None
    exactly: float | None = None
    conditions: ClaimConditions = ClaimConditions()
    untestable: str = ""


class ClaimsFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Claims of one paper.

    Attributes:
        paper: authors, title and year.
        about: what its experiments compare, and how they are repeated here.
    """

    paper: str
    about: str
    claims: Sequence[Claim]


class ClaimMetric(NamedTuple):
    """Metric of a claim, and its value in a run; `higher`: whether a higher value is better."""

    title: str
    unit: str
    higher: bool
    of_run: Callable[[Run, str | None], float | None]


def _interval(run: Run, window: str | None) -> IntervalMetrics | None:
    measured = run.file.measured if run.file else None
    if measured is None or window is None:
        return measured
    return next((each for each in measured.windows if each.name == window), None)


def _throughput(run: Run, window: str | None) -> float | None:
    metrics = _interval(run, window)
    return metrics.sink_tuples_per_s if metrics else None


def _p95(run: Run, window: str | None) -> float | None:
    metrics = _interval(run, window)
    return metrics.latency_ms.p95 if metrics else None


def _energy(run: Run, window: str | None) -> float | None:
    return run.energy.joules_per_tuple if run.energy and window is None else None


def _sustainable(run: Run, window: str | None) -> float | None:
    search = run.file.search if run.file else None
    return search.tuples_per_s if search else None


def used_nodes(run: Run, window: str | None = None) -> float | None:
    """Return the number of nodes with executors at the start of a run; None without a placement."""
    return float(len({node for node, _ in run.slots})) or None


def _spread(run: Run, window: str | None) -> float | None:
    return node_spread(run) if window is None else None


METRICS: Mapping[str, ClaimMetric] = {
    "throughput": ClaimMetric("throughput", "tuples/s", True, _throughput),
    "latency_p95": ClaimMetric("p95 latency", "ms", False, _p95),
    "joules_per_tuple": ClaimMetric("energy per tuple", "J", False, _energy),
    "sustainable_rate": ClaimMetric("sustainable rate", "tuples/s", True, _sustainable),
    "node_spread": ClaimMetric("spread of tuples over nodes", "", False, _spread),
    "nodes_used": ClaimMetric("nodes used", "nodes", False, used_nodes),
}
"""Metrics of claims."""


class MeasuredRatio(NamedTuple):
    """Ratio by which a scheduler was better than the rival, with repetitions and interval (None with too few)."""

    n: int
    interval: ConfidenceInterval | None
    ratio: float | None


class Evidence(NamedTuple):
    """Verdict of results on a claim.

    Attributes:
        campaign: name and start of the campaign, the last two parts of its folder's path.
        n: number of repetitions that both schedulers have.
        interval: how many times better `ours` was, with its interval; None with too few repetitions.
        ratio: the same without an interval; None without common repetitions.
        nodes: nodes used by `ours` and by the rival, in the median; None: unknown.
        load: offered rate as a share of the sustainable one; None: not measured; infinity: as fast as possible.
        suspect: number of repetitions that are left out because of a suspect run, or of one whose timeline failed.
        used: what runs of `ours` and of the rival used: workers, CPU cores and the busiest link, in the median; of
            suspect runs only where there are no others.
        others: the same comparison of the campaign's other schedulers with the rival, by their labels.
            Without suspect runs, unless every repetition has one.
        with_suspect: the comparison with all repetitions, also those with a suspect run.
        doubt: why a run of the two is suspect, the first one that is; empty without any.
    """

    campaign: str
    n: int
    interval: ConfidenceInterval | None
    ratio: float | None
    nodes: tuple[float | None, float | None]
    load: float | None
    suspect: int
    used: tuple[Used, Used] = (Used(None, None, None), Used(None, None, None))
    others: Mapping[str, MeasuredRatio] = {}
    with_suspect: MeasuredRatio = MeasuredRatio(0, None, None)
    doubt: str = ""


class Judged(NamedTuple):
    """A claim, its verdict with the reason, and what results say."""

    claim: Claim
    verdict: Verdict
    reason: str
    evidence: Evidence | None = None


class Missing(NamedTuple):
    """An experiment without results: name of its agenda, seconds that it needs, and the claims that it tests."""

    agenda: str
    seconds: float
    claims: tuple[str, ...]


def evidence(claim: Claim, campaign: Campaign) -> Evidence | None:
    """Return what a campaign says about a claim; None without runs of both schedulers.

    Repetitions in which one of the two schedulers had a suspect run are left out, and so are those whose timeline
    failed, which do not count at all.
    """
    labels = (claim.ours, claim.rival)
    sides = {label: _runs(claim, campaign, label) for label in labels}
    off_script = [run for label in labels for run in _all_runs(claim, campaign, label) if run.off_script]
    if not all(sides.values()) and not off_script:
        return None
    ours, rival = sides.values()
    suspect = {repetition for runs in sides.values() for repetition, run in runs.items() if run.suspect}
    left = {at for runs in sides.values() for at in runs} - suspect
    measured = _measured(claim, ours, rival)
    others = {
        label: _measured(claim, runs, rival, all_runs=not left)
        for label in campaign.schedulers
        if label not in sides and (runs := _runs(claim, campaign, label))
    }
    nodes = [_middle([used_nodes(run) for run in runs.values()]) for runs in sides.values()]
    used = [
        _middle_use([used_by(run) for at, run in runs.items() if at in left or not left]) for runs in sides.values()
    ]
    load = _middle([_load(run) for run in rival.values()])
    return Evidence(
        "/".join(campaign.folder.resolve().parts[-2:]),
        *measured,
        nodes=(nodes[0], nodes[1]),
        load=load,
        suspect=len(suspect | {run.repetition for run in off_script}),
        used=(used[0], used[1]),
        others=others,
        with_suspect=_measured(claim, ours, rival, all_runs=True),
        doubt=next((run.suspect for run in (*ours.values(), *rival.values(), *off_script) if run.suspect), ""),
    )


def _measured(claim: Claim, ours: Mapping[int, Run], rival: Mapping[int, Run], all_runs: bool = False) -> MeasuredRatio:
    """Compare two schedulers, by repetition -> run, in all repetitions or in those without a suspect run of either."""
    metric = METRICS[claim.metric]
    suspect = {repetition for runs in (ours, rival) for repetition, run in runs.items() if run.suspect and not all_runs}
    values = [
        {at: metric.of_run(run, claim.window) for at, run in runs.items() if at not in suspect}
        for runs in (ours, rival)
    ]
    better, worse = values if metric.higher else reversed(values)
    comparison = compare(better, worse, claim.id)
    if comparison is None:
        return MeasuredRatio(0, None, None)
    return MeasuredRatio(comparison.n, comparison.ratio if comparison.n >= ENOUGH else None, comparison.ratio_estimate)


def _middle_use(uses: Sequence[Used]) -> Used:
    workers = _middle([each.workers for each in uses])
    cores, link = _middle([each.cores for each in uses]), _middle([each.link for each in uses])
    return Used(None if workers is None else round(workers), cores, link)


def _runs(claim: Claim, campaign: Campaign, scheduler: str) -> dict[int, Run]:
    """Return repetition -> run of a scheduler that counts, of the claim's workload and factors."""
    runs = _all_runs(claim, campaign, scheduler)
    return {run.file.repetition: run for run in runs if run.counts and run.file is not None}


def _all_runs(claim: Claim, campaign: Campaign, scheduler: str) -> list[Run]:
    """Return the runs of a scheduler, of the claim's workload and factors."""
    return [
        run
        for run in campaign.runs
        if run.file is not None
        and run.file.scheduler == scheduler
        and claim.workload in ("", run.file.label or run.file.workload)
        and all(run.file.factors.get(key) == value for key, value in claim.factors.items())
    ]


def _middle(values: Sequence[float | None]) -> float | None:
    known = sorted(value for value in values if value is not None)
    return known[len(known) // 2] if known else None


def _load(run: Run) -> float | None:
    if run.file is None or run.file.measured is None:
        return None
    if run.file.measured.due_tuples_per_s is None:  # as fast as possible
        return float("inf")
    if run.file.load is not None:
        return run.file.load.share
    return 1.0 if run.file.measured.saturated else None


def verdict(claim: Claim, seen: Evidence | None) -> tuple[Verdict, str]:
    """Return the verdict on a claim of a ratio, and its reason.

    With the interval [low, high] of how many times better `ours` was, and the claimed ratio c > 1: *confirmed* if
    low > 1 and high >= c; *direction only* if low > 1 and 1 + (c - 1) / 2 <= high < c; *refuted* if
    high < 1 + (c - 1) / 2 and the claim's conditions hold. A claim of equality is confirmed by an interval within
    [0.9, 1.1], and refuted by one that lies outside it. Everything else is *not visible here*.
    """
    if claim.untestable:
        return NOT_TESTABLE, claim.untestable
    if seen is None:
        return PENDING, "no results"
    if seen.interval is None:
        left_out = f" ({seen.suspect} more had suspect runs)" if seen.suspect else ""
        return NOT_VISIBLE, f"{seen.n} repetitions{left_out}, and {ENOUGH} are needed"
    low, high = seen.interval.low, seen.interval.high
    ratio = claim.ratio or 1.0
    if ratio == 1.0:
        if low >= EQUAL_LOW and high <= EQUAL_HIGH:
            return CONFIRMED, "the interval lies within 0.9 and 1.1"
        is_refuted = high < EQUAL_LOW or low > EQUAL_HIGH
        reason = "the interval lies outside 0.9 and 1.1"
    else:
        half = 1 + (ratio - 1) / 2
        if low > 1 and high >= half:
            return (
                (CONFIRMED, "better, and as much as claimed") if high >= ratio else (DIRECTION, "better, but by less")
            )
        is_refuted = high < half
        reason = "less than half of what is claimed"
    if not is_refuted:
        return NOT_VISIBLE, "the interval is too wide"
    unmet = unmet_conditions(claim, seen)
    return (NOT_VISIBLE, f"{reason}, but {'; '.join(unmet)}") if unmet else (REFUTED, reason)


def unmet_conditions(claim: Claim, seen: Evidence) -> list[str]:
    """Return the conditions of a claim that did not hold, or were not measured."""
    doubts = []
    if claim.conditions.load is not None:
        if seen.load is None:
            doubts.append("the load was not measured")
        elif seen.load < claim.conditions.load:
            doubts.append(f"the load was {seen.load:.2g}, not {claim.conditions.load:g}")
    if claim.conditions.equal_nodes and seen.nodes[0] != seen.nodes[1]:
        doubts.append("the schedulers used different numbers of nodes")
    return doubts


def exact_verdict(claim: Claim, value: float | None) -> tuple[Verdict, str]:
    """Return the verdict on a claim of a value that a placement alone has, and its reason."""
    if value is None:
        return NOT_VISIBLE, "the workload cannot be placed"
    if value == claim.exactly:
        return CONFIRMED, f"computed: {value:g}"
    return REFUTED, f"computed: {value:g}, not {claim.exactly:g}"
