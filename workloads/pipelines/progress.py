"""Progress of Spark, one line every other second."""

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from pyspark import SparkContext

from inventory.foreign import printable

PREFIX = "pipeline: "
EVERY_S = 2.0

STARTED = time.monotonic()


def report(what: str) -> None:
    """Write a line of progress to standard error."""
    sys.stderr.write(f"{PREFIX}{time.monotonic() - STARTED:6.1f} s  {printable(what)}\n")
    sys.stderr.flush()


class Watch:
    """Reports Spark's active stages and completed tasks inside the block.

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
            self._report("Spark is starting" if self._context is None else in_words(self._context))


def in_words(context: SparkContext) -> str:
    """Return Spark's current activity; between stages it plans, or our own program works."""
    tracker = context.statusTracker()
    found = [tracker.getStageInfo(stage) for stage in sorted(tracker.getActiveStageIds())]
    stages = [f"stage {stage.stageId}: {stage.numCompletedTasks} of {stage.numTasks} tasks" for stage in found if stage]
    return ", ".join(stages) or "between two stages"
