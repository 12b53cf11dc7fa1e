"""`millrace pipeline`: Spark data pipelines over the recordings of the DEBS challenges."""

import os
from pathlib import Path

import click
import psutil

from analysis.submit import LOCAL, QUICK_START, Job, submit
from campaign.display.settings import Settings
from inventory.foreign import printable
from workloads.pipelines.catalogue import PIPELINES, SOCKET
from workloads.recordings.raw_files import files_of

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

EXAMPLE = """\b
Examples:
  millrace pipeline debs2015-q1 --input trips.csv.gz --output routes
  millrace pipeline debs2015-q1 --input parts/ --output routes --param answer=both --format csv --stream
  millrace pipeline prepare --input trips/ --output prepared --param topology=my.yml --master spark://n1:7077
"""


@click.command("pipeline", epilog=EXAMPLE)
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
@click.option("--master", metavar="URL", help=f"Spark master; default {LOCAL}, this host's cores.")
@click.option("--stream", is_flag=True, help="Read part by part as a stream; the result is the same.")
@click.pass_obj
def command(
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
    from workloads.pipelines.run_pipeline import Asked, checked

    output = Path(os.path.abspath(output))  # noqa: PTH100 - a link is kept, and what it points to is not replaced
    checked(Asked(name, source, output, params, "csv" if kind == "csv" else "parquet", stream))

    def show_progress(line: str) -> None:
        if not settings.quiet:
            click.echo(printable(line), err=True)

    arguments = [name, "--input", source, "--output", str(output), "--format", kind]
    arguments += [part for param in params for part in ("--param", param)]
    arguments += ["--stream"] if stream else []
    memory = min(MOST_MB, max(LEAST_MB, psutil.virtual_memory().total // 4 >> 20))
    log = output.with_name(f"{output.name}.log")
    long = _size(source) >= SMALL_BYTES
    java = LONG_RUN if long else QUICK_START
    spark = {"spark.driver.memory": f"{memory}m"}
    submit(Job(f"the pipeline {name}", SCRIPT, arguments, PROGRESS, log, java, spark, long), master, show_progress)
    click.echo(printable(f"pipeline: {output}"))


def _size(source: str) -> int:
    """Return the bytes of the input; for a socket, whose input has no known size, the bytes of a large one."""
    if source.startswith(SOCKET):
        return SMALL_BYTES
    return sum(part.stat().st_size for part in files_of(Path(source)))
