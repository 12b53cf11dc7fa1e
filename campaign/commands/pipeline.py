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
"""Of memory for Spark on one machine: a quarter of the machine's, within these."""

SMALL_BYTES = 16 * 1024 * 1024
"""Less is worked through before Java's optimising compiler would pay."""

LONG_RUN = (
    "-XX:+UseParallelGC",
    # Classes that Spark generates pass the usual size several times, each time with a full collection.
    "-XX:MetaspaceSize=512m",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""Options of Java for larger inputs. The optimising compiler waits ten times as long as usual: much of what it takes on
is Spark's planning, which is over when it is done."""

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
    help="File or folder of parts: official CSV, packed or not, or what `prepare` wrote. With --stream also "
    "tcp://HOST:PORT.",
)
@click.option(
    "--output",
    required=True,
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Folder of the tables; an earlier output is replaced when the new one is complete.",
)
@click.option("--param", "params", multiple=True, metavar="K=V", help="A parameter of the pipeline.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["parquet", "csv"]),
    default="parquet",
    show_default=True,
    help="Of the tables; CSV has a header and NULL for what is missing.",
)
@click.option("--master", metavar="URL", help=f"Spark master; default {LOCAL}, this host's cores.")
@click.option("--stream", is_flag=True, help="Read part by part as a stream; the answer is the same.")
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
    """Run a Spark data pipeline: OUTPUT gets a folder per table, and summary.json with the rows read and left out.

    debs2014-q1: loads of houses and plugs, predicted. debs2015-q1: frequent routes. debs2015-q2: profitable areas.
    prepare: raw files validated, put in order and profiled, as Parquet; with --param topology=FILE also a traffic file
    for `millrace place`. What they take and give, docs/reference/pipelines.md tells.
    """
    from workloads.pipelines.run_pipeline import Asked, checked

    output = Path(os.path.abspath(output))  # noqa: PTH100 - a link is kept, and what it points to is not replaced
    checked(Asked(name, source, output, params, "csv" if kind == "csv" else "parquet", stream))

    def tell(line: str) -> None:
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
    submit(Job(f"the pipeline {name}", SCRIPT, arguments, PROGRESS, log, java, spark, long), master, tell)
    click.echo(printable(f"pipeline: {output}"))


def _size(source: str) -> int:
    """Bytes of the input; of a socket nobody knows."""
    if source.startswith(SOCKET):
        return SMALL_BYTES
    return sum(part.stat().st_size for part in files_of(Path(source)))
