"""Spark session that reports its progress, one line every other second."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from inventory.errors import UnfitError
from inventory.foreign import printable

PREFIX = "pipeline: "
EVERY_S = 2.0

STARTED = time.monotonic()


def report(what: str) -> None:
    """Write a line of progress to standard error."""
    sys.stderr.write(f"{PREFIX}{time.monotonic() - STARTED:6.1f} s  {printable(what)}\n")
    sys.stderr.flush()


class SparkWatch:
    """Report Spark's active stages and completed tasks inside the block.

    Args:
        report: receives the lines.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._context: SparkContext | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def follow(self, context: SparkContext) -> None:
        """Start reporting on a started Spark context."""
        self._context = context

    def _watch(self) -> None:
        while not self._over.wait(EVERY_S):
            self._report("Spark is starting" if self._context is None else activity_text(self._context))


def activity_text(context: SparkContext) -> str:
    """Return Spark's current activity; between stages Spark plans, or this program works."""
    tracker = context.statusTracker()
    infos = [tracker.getStageInfo(stage) for stage in sorted(tracker.getActiveStageIds())]
    stages = [f"stage {stage.stageId}: {stage.numCompletedTasks} of {stage.numTasks} tasks" for stage in infos if stage]
    return ", ".join(stages) or "between two stages"


@contextmanager
def spark_started(builder: SparkSession.Builder, report: Callable[[str], None]) -> Iterator[SparkSession]:
    """Start Spark for the block, and stop it afterwards.

    Args:
        builder: of the session.
        report: receives lines of progress.

    Raises:
        UnfitError: Spark does not start.
    """
    # The watch queries Spark, so it ends first.
    with ExitStack() as stack, SparkWatch(report) as watch:
        spark = _get(builder)
        stack.callback(spark.stop)
        watch.follow(spark.sparkContext)
        yield spark


def _get(builder: SparkSession.Builder) -> SparkSession:
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError) as fault:
        # Java's own message comes before its stack trace, after that of the bridge.
        words = [line for line in str(fault).splitlines() if line.startswith(":")] or str(fault).splitlines()
        raise UnfitError(f"Spark does not start: {words[0].lstrip(': ')}") from None
