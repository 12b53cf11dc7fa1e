"""Claims and verdicts as text: a page per paper in Markdown, tables for the terminal, and JSON."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from analysis.claims.verdicts import METRICS, Claim, ClaimsFile, Evidence, Judged, MeasuredRatio, Missing
from analysis.page.print_tables import markdown
from analysis.records.factors import factors_text
from campaign.display.placement_tables import MAX_WIDTH
from campaign.display.terminal import plain_console
from campaign.results.live_file import duration_text
from inventory.documents import dump_json

UNKNOWN = "not measured"


PAGE_MARK = "[What the verdicts mean](../claims.md#verdicts)"
JSON_MARK = '"verdict":'
"""Text that every page, and the JSON document of any claims, contains."""


def claims_page(claims: ClaimsFile, judged: Sequence[Judged]) -> str:
    """Return the page of a paper: how often which verdict, a table of all claims, and what each verdict rests on.

    Pending claims are in the table only; their agendas are what `millrace claims --pending` lists.

    Args:
        claims: the claims of the paper.
        judged: the same with verdicts.
    """
    lines = [f"# {claims.paper}", "", claims.about.strip(), ""]
    lines += [f"{_counted(judged)}. {PAGE_MARK}.", ""]
    headings = ("claim", "figure", "in words", "claimed", "measured", "verdict")
    rows = [(identity, source, each.claim.says, *rest) for each in judged for identity, source, *rest in [_row(each)]]
    lines.append(markdown(headings, rows))
    for each in judged:
        if each.verdict == "pending":
            continue
        lines += [f"## {each.claim.id}", ""]
        lines += [f"- **{each.verdict}**: {each.reason}"]
        lines += [f"- {text}" for text in _details(each)] + [""]
    return "\n".join(lines).rstrip() + "\n"


def claims_json(papers: Mapping[str, Sequence[Judged]]) -> str:
    """Return claims, verdicts and what they rest on as JSON: a list, in the order of papers and claims.

    A load is null if it was not measured, and -1 if sources emitted as fast as possible.
    """
    return dump_json([_document(paper, each) for paper, judged in papers.items() for each in judged])


def _document(paper: str, judged: Judged) -> dict[str, Any]:
    claim, seen = judged.claim, judged.evidence
    document: dict[str, Any] = {
        "paper": paper,
        "id": claim.id,
        "says": claim.says,
        "source": claim.source,
        "agendas": [f"papers/{paper}/{size}/{claim.experiment}" for size in ("small", "lab") if claim.experiment],
        "workload": claim.workload,
        "factors": claim.factors,
        "window": claim.window,
        "metric": claim.metric,
        "ours": claim.ours,
        "rival": claim.rival,
        "claimed": claim.ratio if claim.exactly is None else claim.exactly,
        "verdict": judged.verdict,
        "reason": judged.reason,
        "evidence": None,
    }
    if seen is not None:
        document["evidence"] = {
            "campaign": seen.campaign,
            **_comparison(MeasuredRatio(seen.n, seen.interval, seen.ratio)),
            "suspect": seen.suspect,
            "with_suspect": _comparison(seen.with_suspect),
            "doubt": seen.doubt,
            "load": seen.load if seen.load is None or math.isfinite(seen.load) else -1.0,
            "sides": {
                label: {"nodes": nodes, **used._asdict()}
                for label, nodes, used in zip((claim.ours, claim.rival), seen.nodes, seen.used, strict=True)
            },
            "others": {label: _comparison(each) for label, each in seen.others.items()},
        }
    return document


def _comparison(measured: MeasuredRatio) -> dict[str, float | None]:
    interval = measured.interval
    return {
        "n": measured.n,
        "ratio": interval.estimate if interval else measured.ratio,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
    }


def claims_table(papers: Mapping[str, Sequence[Judged]], color: bool) -> str:
    """Return a line per claim, for standard output."""
    console = plain_console(color)
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for column in ("paper", "claim", "claimed", "measured", "verdict", "reason"):
        table.add_column(column, no_wrap=True)
    for paper, judged in papers.items():
        for each in judged:
            identity, _, claimed, measured, verdict = _row(each)
            table.add_row(paper, identity, claimed, measured, verdict, each.reason)
    console.width = max(console.width, Console(width=MAX_WIDTH).measure(table).maximum)
    with console.capture() as text:
        console.print(table)
    return "\n".join(line.rstrip() for line in text.get().rstrip().splitlines())


def missing_text(missing: Sequence[Missing]) -> str:
    """Return a line per experiment without results, the shortest first, and the time of all."""
    if not missing:
        return "every claim that can be tested has results"
    width = max(len(each.agenda) for each in missing)
    lines = [
        f"{each.agenda:<{width}}  about {duration_text(each.seconds)}, for {', '.join(each.claims)}" for each in missing
    ]
    return "\n".join([*lines, f"all together: about {duration_text(sum(each.seconds for each in missing))}"])


def _counted(judged: Sequence[Judged]) -> str:
    counts = Counter(each.verdict for each in judged)
    return f"Of {len(judged)} claims: " + ", ".join(f"{count} {name}" for name, count in counts.most_common())


def _row(judged: Judged) -> tuple[str, str, str, str, str]:
    claim, seen = judged.claim, judged.evidence
    return claim.id, claim.source, _claimed(claim), _measured(seen) or _measured_suspect(seen), judged.verdict


def _claimed(claim: Claim) -> str:
    if claim.exactly is not None:
        return f"{claim.exactly:g} {METRICS[claim.metric].unit}"
    if claim.ratio is None:
        return ""
    return "equal" if claim.ratio == 1 else f"{claim.ratio:g} times better"


def _measured(seen: Evidence | MeasuredRatio | None) -> str:
    if seen is None or seen.ratio is None:
        return ""
    if seen.interval is None:
        return f"{seen.ratio:.2f}, n = {seen.n}"
    return f"{seen.interval.estimate:.2f} [{seen.interval.low:.2f}, {seen.interval.high:.2f}], n = {seen.n}"


def _measured_suspect(seen: Evidence | None) -> str:
    """Return what all repetitions show, for a claim whose repetitions have suspect runs; empty without any."""
    if seen is None or not seen.suspect:
        return ""
    return f"{_measured(seen.with_suspect)}, {seen.suspect} suspect"


def _using(seen: Evidence) -> list[str]:
    """Return what each side used, in words."""
    return [
        f"{UNKNOWN if used.workers is None else used.workers} workers, "
        f"{UNKNOWN if used.cores is None else f'{used.cores:.2f}'} CPU cores, busiest link "
        f"{'without a limit' if used.link is None else f'at {100 * used.link:.0f} % of its rate'}"
        for used in seen.used
    ]


def _details(judged: Judged) -> list[str]:
    claim, seen = judged.claim, judged.evidence
    if claim.untestable:
        return []
    at = f" at {factors_text(claim.factors)}" if claim.factors else ""
    where = f", window {claim.window}" if claim.window else ""
    rival = f" against {claim.rival}" if claim.rival else ""
    details = [f"metric: {METRICS[claim.metric].title} of {claim.workload} under {claim.ours}{rival}{where}{at}"]
    if seen is not None:
        load = UNKNOWN if seen.load is None else "as fast as possible" if math.isinf(seen.load) else f"{seen.load:.2f}"
        ours, other = (UNKNOWN if each is None else f"{each:g}" for each in seen.nodes)
        details.append(f"results: `{seen.campaign}`")
        details.append(f"load: {load}; nodes used: {ours} by {claim.ours}, {other} by {claim.rival}")
        details += [f"{label}: {using}" for label, using in zip((claim.ours, claim.rival), _using(seen), strict=True)]
        if seen.suspect:
            details.append(f"repetitions: {seen.n}; {seen.suspect} left out because of suspect runs")
            details.append(
                f"with the suspect runs: {_measured(seen.with_suspect)}; one is suspect because: {seen.doubt}"
            )
        others = [f"{label} {text}" for label, each in seen.others.items() if (text := _measured(each))]
        if others:
            details.append(f"other placements against {claim.rival}: {'; '.join(others)}")
    return details
