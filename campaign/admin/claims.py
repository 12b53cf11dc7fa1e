"""Claims of the five papers: their files, the agendas that test them, and what results and placements say."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from analysis.claims.verdicts import (
    METRICS,
    PENDING,
    Claim,
    ClaimsFile,
    Judged,
    Missing,
    evidence,
    exact_verdict,
    verdict,
)
from analysis.records.campaign import Campaign
from campaign.agenda.campaign_plan import CampaignPlan
from campaign.agenda.run_order import PlannedRun
from campaign.results.estimate import estimate
from campaign.runner.open_campaign import Opened, new
from inventory.documents import Origin, read
from inventory.errors import nearest

CLAIMS = Path(__file__).parents[1] / "claims"
"""Files of claims, one per paper."""

PAPERS = Path(__file__).parents[1] / "agendas" / "papers"
"""A folder per paper, with its agendas."""

SMALL, LAB = "small", "lab"


def papers() -> list[str]:
    """Return the names of the papers: those of their files, and of the folders of their agendas."""
    return sorted(path.stem for path in CLAIMS.glob("*.yaml"))


def read_claims(paper: str) -> ClaimsFile:
    """Return the claims of a paper.

    Raises:
        InputError: a claim is incomplete, is there twice, or names an unknown metric or experiment.
    """
    document = read(CLAIMS / f"{paper}.yaml")
    claims_file = document.convert(ClaimsFile)
    seen: set[str] = set()
    for at, claim in enumerate(claims_file.claims):
        origin = document.origin / "claims" / at
        if claim.id in seen:
            raise (origin / "id").error(f"{claim.id!r} is there twice")
        seen.add(claim.id)
        if not claim.untestable:
            _check(paper, claim, origin)
    return claims_file


def _check(paper: str, claim: Claim, origin: Origin) -> None:
    if claim.metric not in METRICS:
        raise (origin / "metric").error(f"unknown metric {claim.metric!r}{nearest(claim.metric, METRICS)}")
    experiments = [path.stem for path in (PAPERS / paper / SMALL).glob("*.yaml")]
    if claim.experiment not in experiments:
        hint = nearest(claim.experiment or "", experiments)
        raise (origin / "experiment").error(f"there is no agenda {agenda_name(paper, claim.experiment, SMALL)}{hint}")
    if (claim.ratio is None) == (claim.exactly is None):
        raise origin.error("give either 'ratio' or 'exactly'")
    for key in ("ours", *(("rival",) if claim.ratio is not None else ())):
        if not getattr(claim, key):
            raise origin.error(f"the key {key!r} is missing")


def agenda_name(paper: str, experiment: str | None, size: str) -> str:
    """Return the name of the agenda of an experiment."""
    return f"papers/{paper}/{size}/{experiment}"


def judged(paper: str, claims: ClaimsFile, campaigns: Sequence[Campaign]) -> Iterator[Judged]:
    """Yield the claims of a paper with verdicts, in their order.

    Of several campaigns of an experiment, the last one decides. Placements are computed.

    Args:
        paper: the paper.
        claims: its claims.
        campaigns: results, in any order; those of other agendas are ignored.
    """
    plans: dict[str, CampaignPlan] = {}
    for claim in claims.claims:
        if claim.exactly is not None and claim.experiment is not None:
            name = agenda_name(paper, claim.experiment, SMALL)
            if name not in plans:
                plans[name] = _opened(name).plan
            yield Judged(claim, *exact_verdict(claim, _placed_value(claim, plans[name])))
            continue
        names = {f"{paper}-{claim.experiment}-{size}" for size in (SMALL, LAB)}
        by_campaign = [evidence(claim, each) for each in campaigns if each.name in names]
        seen = next((each for each in reversed(by_campaign) if each is not None), None)
        yield Judged(claim, *verdict(claim, seen), seen)


def _placed_value(claim: Claim, plan: CampaignPlan) -> float | None:
    """Return the number of nodes used under `ours`; None if the workload cannot be placed."""
    for run in _runs(claim, plan):
        placed = plan.at(run).placed.get((run.workload, run.scheduler))
        return None if placed is None else float(placed.answer.cost.nodes_used)
    return None


def _runs(claim: Claim, plan: CampaignPlan) -> Iterator[PlannedRun]:
    """Yield the runs of a claim's workload and factors under `ours`."""
    for run in plan.runs:
        is_ours = (run.workload, run.scheduler) == (claim.workload, claim.ours)
        if is_ours and all(run.factors.get(key) == value for key, value in claim.factors.items()):
            yield run


def missing(judgements: Mapping[str, Sequence[Judged]]) -> list[Missing]:
    """Return the agendas of pending claims, the shortest first; a large one where the small one lacks the claim's runs.

    Args:
        judgements: paper -> its judged claims.
    """
    opened: dict[str, Opened] = {}
    waiting: dict[str, list[str]] = {}
    for paper, claims in judgements.items():
        for each in claims:
            if each.verdict != PENDING:
                continue
            for size in (SMALL, LAB):
                name = agenda_name(paper, each.claim.experiment, size)
                if name not in opened:
                    opened[name] = _opened(name)
                if any(_runs(each.claim, opened[name].plan)):
                    waiting.setdefault(name, []).append(each.claim.id)
                    break
    rows = [Missing(name, _seconds(opened[name]), tuple(claims)) for name, claims in waiting.items()]
    return sorted(rows, key=lambda each: each.seconds)


def _opened(name: str) -> Opened:
    return new(name, None, Path("results"))


def _seconds(opened: Opened) -> float:
    runs = [run for run in opened.plan.runs if not opened.plan.why_unplaced(run)]
    return estimate(opened.plan, runs, opened.folder).seconds
