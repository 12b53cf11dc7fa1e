"""`millrace generate`: seeded data in an official schema."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from campaign.display.progress_bar import share_done
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
    help="File to write, packed when its name ends in .gz; one that is there is replaced when the new one is whole.",
)
@click.option("--rows", required=True, metavar="N", type=click.IntRange(min=1), help="How many rows.")
@click.option(
    "--seed",
    default=0,
    show_default=True,
    metavar="S",
    type=click.IntRange(min=0),
    help="Same seed, same rows, on every machine.",
)
@click.pass_obj
def command(settings: Settings, name: str, output: Path, rows: int, seed: int) -> None:
    """Write data with the schema and the statistics of a real set.

    debs2014: readings of smart plugs. debs2015: taxi trips. text: lines of words. What the data has in common with the
    real sets, docs/reference/generators.md tells.
    """
    from workloads.generate.kinds import KINDS
    from workloads.generate.writing import write_rows

    kind: Kind = KINDS[name]
    with interrupted_once(), share_done(f"generating {output.name}", settings.quiet, settings.color) as tell:
        write_rows(output, kind(rows, seed), lambda written: tell(written / rows))
    click.echo(f"{printable(output)}: {rows:,} rows of {name}, seed {seed}, {output.stat().st_size:,} bytes")
