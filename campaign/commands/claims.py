"""Command that compares results with the claims of papers: `claims`."""

from pathlib import Path

import click

from campaign.display.terminal import Settings
from inventory.errors import InputError, nearest
from inventory.foreign import printable

CLAIMS_EXAMPLE = """\b
Examples:
  millrace claims --pending
  millrace claims results/top-storm-wordcount-small/latest --out claims
"""


@click.command("claims", epilog=CLAIMS_EXAMPLE)
@click.argument("folders", metavar="[DIR...]", nargs=-1, type=click.Path(path_type=Path))
@click.option("--paper", metavar="NAME", help="Only the claims of one paper, by its folder among the agendas.")
@click.option("--pending", is_flag=True, help="List the agendas whose results are missing, and the time they need.")
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder for claims.json and a page per paper; earlier ones are replaced.",
)
@click.pass_obj
def claims_command(
    settings: Settings, folders: tuple[Path, ...], paper: str | None, pending: bool, out: Path | None
) -> None:
    """Compare results with the claims of the five papers.

    Prints a verdict per claim. DIR are campaigns by the agendas in papers/ (`millrace list agendas`). Without
    any, there are only verdicts on claims about placements, which are computed.
    """
    from analysis.records.campaign import load_campaign
    from campaign.admin.claims import judged, missing, papers, read_claims
    from campaign.display.claim_pages import (
        JSON_MARK,
        PAGE_MARK,
        claims_json,
        claims_page,
        claims_table,
        missing_text,
    )
    from campaign.results.live_file import find_campaign
    from controller.host.disk import writing
    from inventory.atomic_files import replace_file
    from inventory.own_files import check_file

    if paper is not None and paper not in papers():
        raise InputError(f"--paper {printable(paper)}: there are no claims of that paper{nearest(paper, papers())}")
    campaigns = [load_campaign(find_campaign(folder)) for folder in folders]
    if out is not None:
        check_file(out / "claims.json", JSON_MARK, "--out")
        for name in papers():
            if paper in (None, name):
                check_file(out / f"{name}.md", PAGE_MARK, "--out")
    files = {name: read_claims(name) for name in papers() if paper in (None, name)}
    judgements = {name: list(judged(name, claims, campaigns)) for name, claims in files.items()}
    click.echo(missing_text(missing(judgements)) if pending else claims_table(judgements, settings.color))
    if out is not None:
        with writing(out):
            out.mkdir(parents=True, exist_ok=True)
            replace_file(out / "claims.json", claims_json(judgements).encode())
            for name, claims in files.items():
                replace_file(out / f"{name}.md", claims_page(claims, judgements[name]).encode())
        click.echo(printable(f"pages: {out}"))
