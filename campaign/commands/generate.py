"""`millrace generate`: seeded data with the schema of a public data set."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from campaign.display.progress_bar import progress_bar
from campaign.display.settings import Settings
from controller.host.signals import interrupted_once
from inventory.foreign import printable

if TYPE_CHECKING:
    from workloads.generate.kinds import Kind

NAMES = ("debs2014", "debs2015", "text")

EXAMPLE = """\b
Example:
  millrace generate debs2015 --output trips.csv.gz --rows 1000000 --seed 7
"""


@click.command("generate", epilog=EXAMPLE)
@click.argument("name", metavar="|".join(NAMES), type=click.Choice(NAMES))
@click.option(
    "--output",
    required=True,
    metavar="PATH",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Output file; compressed if the name ends in .gz. An existing file is replaced once the new one is complete.",
)
@click.option("--rows", required=True, metavar="N", type=click.IntRange(min=1), help="Number of rows.")
@click.option(
    "--seed",
    default=0,
    show_default=True,
    metavar="S",
    type=click.IntRange(min=0),
    help="Random seed; the same seed gives the same rows on every machine.",
)
@click.pass_obj
def command(settings: Settings, name: str, output: Path, rows: int, seed: int) -> None:
    """Generate seeded data like a public data set.

    debs2014: readings of smart plugs. debs2015: taxi trips. text: lines of words. Schema and statistics follow the
    real sets; docs/reference/generators.md describes how closely.
    """
    from workloads.generate.kinds import KINDS
    from workloads.generate.writing import write_rows

    kind: Kind = KINDS[name]
    with interrupted_once(), progress_bar(f"generating {output.name}", settings.quiet, settings.color) as show_progress:
        write_rows(output, kind(rows, seed), lambda written: show_progress(written / rows))
    click.echo(f"{printable(output)}: {rows:,} rows of {name}, seed {seed}, {output.stat().st_size:,} bytes")
