"""Commands that make and process data sets: `generate` and `pipeline`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from campaign.commands.options import master_option, output_file
from campaign.display.terminal import Settings, progress_bar, stages_shown
from controller.host.signals import interrupted_once
from inventory.foreign import printable
from workloads.pipelines import PIPELINES, SOCKET
from workloads.recordings.raw_files import recording_files

if TYPE_CHECKING:
    from workloads.generate.writing import Kind

GENERATED = ("debs2014", "debs2015", "text")

GENERATE_EXAMPLE = """\b
Example:
  millrace generate debs2015 --output trips.csv.gz --rows 1000000 --seed 7
"""


@click.command("generate", epilog=GENERATE_EXAMPLE)
@click.argument("name", metavar="|".join(GENERATED), type=click.Choice(GENERATED))
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
def generate_command(settings: Settings, name: str, output: Path, rows: int, seed: int) -> None:
    """Generate seeded data like a public data set.

    debs2014: readings of smart plugs. debs2015: taxi trips. text: lines of words. Schema and statistics follow the
    real sets; docs/reference/generators.md describes how closely.
    """
    from workloads.generate.writing import KINDS, write_rows

    kind: Kind = KINDS[name]
    output = output_file(output, "--output")
    with interrupted_once(), progress_bar(f"generating {output.name}", settings.quiet, settings.color) as show_progress:
        write_rows(output, kind(rows, seed), lambda written: show_progress(written / rows))
    click.echo(f"{printable(output)}: {rows:,} rows of {name}, seed {seed}, {output.stat().st_size:,} bytes")


SCRIPT = Path(__file__).parents[2] / "workloads" / "pipelines" / "job.py"
PROGRESS = "pipeline: "

LEAST_MB, MOST_MB = 1024, 8192
"""Bounds of the memory for Spark on one machine, which is a quarter of the machine's memory."""

SMALL_BYTES = 16 * 1024 * 1024
"""Bytes of input; a smaller input is processed before Java's optimising compiler pays off."""

LONG_RUN = (
    "-XX:+UseParallelGC",
    # Classes that Spark generates exceed the default size several times, each time with a full collection.
    "-XX:MetaspaceSize=512m",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""Java options for larger inputs. The optimising compiler starts ten times later than by default: much of the code that
it would compile first is Spark's planning, which is over by then."""

PIPELINE_EXAMPLE = """\b
Examples:
  millrace pipeline debs2015-q1 --input trips.csv.gz --output routes
  millrace pipeline debs2015-q1 --input parts/ --output routes --param answer=both --format csv --stream
  millrace pipeline prepare --input trips/ --output prepared --param topology=my.yml --master spark://n1:7077
"""


@click.command("pipeline", epilog=PIPELINE_EXAMPLE)
@click.argument("name", metavar="|".join(PIPELINES))
@click.option(
    "--input",
    "source",
    required=True,
    metavar="PATH",
    help="File or folder of parts: official CSV, compressed or not, or output of `prepare`. With --stream also "
    "tcp://HOST:PORT.",
)
@click.option(
    "--output",
    required=True,
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Folder of the tables; an existing one is replaced once the new one is complete.",
)
@click.option("--param", "params", multiple=True, metavar="K=V", help="Parameter of the pipeline.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["parquet", "csv"]),
    default="parquet",
    show_default=True,
    help="Format of the tables; CSV has a header, and NULL for missing values.",
)
@master_option
@click.option("--stream", is_flag=True, help="Read part by part as a stream; the result is the same.")
@click.pass_obj
def pipeline_command(
    settings: Settings,
    name: str,
    source: str,
    output: Path,
    params: tuple[str, ...],
    kind: str,
    master: str | None,
    stream: bool,
) -> None:
    """Run a Spark data pipeline.

    The output is a folder per table, and summary.json with the numbers of rows read and skipped. debs2014-q1:
    predicted loads of houses and plugs. debs2015-q1: frequent routes. debs2015-q2: profitable areas. prepare: raw
    files validated, sorted and profiled, as Parquet; with --param topology=FILE also a traffic file for `millrace
    place`. docs/reference/pipelines.md describes their inputs and outputs.
    """
    import psutil

    from analysis.tables.submit import QUICK_START, Job, submit
    from workloads.pipelines.run_pipeline import Asked, checked_pipeline

    output = Path(os.path.abspath(output))  # noqa: PTH100 - a link is kept, and what it points to is not replaced
    checked_pipeline(Asked(name, source, output, params, "csv" if kind == "csv" else "parquet", stream))

    arguments = [name, "--input", source, "--output", str(output), "--format", kind]
    arguments += [part for param in params for part in ("--param", param)]
    arguments += ["--stream"] if stream else []
    memory = min(MOST_MB, max(LEAST_MB, psutil.virtual_memory().total // 4 >> 20))
    long = _size(source) >= SMALL_BYTES
    java = LONG_RUN if long else QUICK_START
    spark = {"spark.driver.memory": f"{memory}m"}
    job = Job(f"the pipeline {name}", SCRIPT, arguments, PROGRESS, output, java, spark, long)
    with stages_shown(settings.quiet, settings.color) as show_stage:
        submit(job, master, show_stage)
    click.echo(printable(f"pipeline: {output}"))


def _size(source: str) -> int:
    """Return the bytes of the input; for a socket, whose input has no known size, the bytes of a large one."""
    if source.startswith(SOCKET):
        return SMALL_BYTES

    return sum(part.stat().st_size for part in recording_files(Path(source)))
