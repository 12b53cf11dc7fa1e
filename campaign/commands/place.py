"""`millrace place`: the placement of topologies, computed without a cluster."""

from collections.abc import Sequence
from pathlib import Path

import click

from campaign.display.settings import Settings
from campaign.place.place import Placed, PlacementRefused, Round, compare, listed, place, status_of
from inventory.documents import dump_json, read
from inventory.foreign import printable
from inventory.params import given
from inventory.reading import read_cluster
from scheduler.explain import Explanation
from scheduler.placement_file import to_json
from scheduler.registry import make_scheduler

EXAMPLE = """\b
Examples:
  millrace place --cluster loopback --topology wordcount.yml --scheduler even
  millrace place --cluster lab.yml --topology a.yml --topology b.yml \\
      --scheduler top-storm --param alpha=0.5 --traffic observed.yml --json
  millrace place --cluster loopback --topology wordcount.yml --scheduler i-scheduler --explain
  millrace place --cluster loopback --topology wordcount.yml --compare even,top-storm,i-scheduler
"""

PICTURES = "placements"


@click.command("place", epilog=EXAMPLE)
@click.option("--cluster", required=True, metavar="C", help="Cluster file, or name of a built-in inventory.")
@click.option(
    "--topology",
    "topologies",
    required=True,
    multiple=True,
    metavar="T",
    help="Topology file; several are placed in one round, in this order.",
)
@click.option(
    "--scheduler",
    metavar="NAME",
    help="See `millrace list schedulers`. With --compare: placed first, unless it is in that list.",
)
@click.option(
    "--compare",
    "compared",
    metavar="NAME,NAME,...",
    help="Run several schedulers on the same files; print one table, draw a picture of each placement.",
)
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="K=V",
    help="Parameter of the scheduler; overrides the file. With --compare: for all schedulers that have it.",
)
@click.option("--params-file", metavar="P", help="File with parameters, also nested ones.")
@click.option("--traffic", metavar="F", help="File with observed rates and loads.")
@click.option(
    "--explain", is_flag=True, help="Print loads, heaviest links, decisions of the algorithm, and W with its bounds."
)
@click.option(
    "--pictures",
    metavar="DIR",
    help=f"Folder for the pictures of --compare, NAME.svg (default: {PICTURES}; with --json, none by default).",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output; of --compare, a list.")
@click.pass_obj
def command(
    settings: Settings,
    cluster: str,
    topologies: tuple[str, ...],
    scheduler: str | None,
    compared: str | None,
    params: tuple[str, ...],
    params_file: str | None,
    traffic: str | None,
    explain: bool,
    pictures: str | None,
    as_json: bool,
) -> int:
    """Compute a placement from files and print its cost.

    A topology that cannot be placed is a valid result: its status is printed, and the exit status is 0.
    """
    if scheduler is None and compared is None:
        raise click.UsageError("give --scheduler NAME, or --compare NAME,NAME,...")
    if pictures is not None and compared is None:
        raise click.UsageError("--pictures is the folder of --compare, which was not given")
    sources = [*([read(params_file)] if params_file is not None else []), given(params)]
    ready = None
    if scheduler is not None and compared is None:
        ready = make_scheduler(scheduler, *((document, ()) for document in sources))
    files = Round(
        read_cluster(cluster),
        [read(path) for path in topologies],
        read(traffic) if traffic is not None else None,
        explain,
    )
    if ready is not None:
        _show(place(ready, files), as_json, settings.color)
        return 0
    outcomes = compare(listed(scheduler, compared or ""), files, *sources)
    if as_json:
        click.echo(dump_json([outcome.document for outcome in outcomes]), nl=False)
    else:
        _show_all(outcomes, settings.color)
    if pictures is not None or not as_json:
        from campaign.place.svg import draw

        for path in draw(outcomes, Path(pictures or PICTURES)):
            click.echo(printable(f"picture: {path}"), err=as_json)
    return status_of(outcomes)


def _show(placed: Placed, as_json: bool, color: bool) -> None:
    if as_json:
        click.echo(to_json(placed.answer), nl=False)
        return
    from campaign.display.placement_table import print_answer  # rich takes long to import

    print_answer(placed.answer, color)
    if isinstance(placed.answer.account, Explanation):
        from campaign.display.explain_tables import print_account

        print_account(placed, placed.answer.account, color)


def _show_all(outcomes: Sequence[Placed | PlacementRefused], color: bool) -> None:
    from campaign.display.comparison_table import print_comparison

    print_comparison(outcomes, color)
    for outcome in outcomes:
        if isinstance(outcome, Placed) and isinstance(outcome.answer.account, Explanation):
            from campaign.display.explain_tables import print_account

            click.echo()
            print_account(outcome, outcome.answer.account, color)
