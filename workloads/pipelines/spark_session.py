"""A Spark session that says what it is doing."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from inventory.errors import UnfitError
from workloads.pipelines.progress import Watch


@contextmanager
def started(builder: SparkSession.Builder, report: Callable[[str], None]) -> Iterator[SparkSession]:
    """Start Spark for the block, and stop it afterwards.

    Args:
        builder: says how.
        report: gets lines of progress all the while.

    Raises:
        UnfitError: Spark does not start.
    """
    # The watch asks Spark, and so ends before it.
    with ExitStack() as stack, Watch(report) as watch:
        spark = _get(builder)
        stack.callback(spark.stop)
        watch.follow(spark.sparkContext)
        yield spark


def _get(builder: SparkSession.Builder) -> SparkSession:
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError) as fault:
        # Java's own words stand before its stack, behind those of the bridge.
        words = [line for line in str(fault).splitlines() if line.startswith(":")] or str(fault).splitlines()
        raise UnfitError(f"Spark does not start: {words[0].lstrip(': ')}") from None
