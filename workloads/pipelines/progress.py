"""What Spark is doing, in a line every other second."""

import sys
import threading
import time
from types import TracebackType
from typing import Self

from pyspark import SparkContext

PREFIX = "pipeline: "
EVERY_S = 2.0

STARTED = time.monotonic()


def tell(what: str) -> None:
    """Write a line of progress to standard error."""
    sys.stderr.write(f"{PREFIX}{time.monotonic() - STARTED:6.1f} s  {what}\n")
    sys.stderr.flush()


class Watch:
    """Tells, inside the block, which stages are under way and how many of their tasks are done."""

    def __init__(self, context: SparkContext) -> None:
        self._tracker = context.statusTracker()
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

    def _watch(self) -> None:
        while not self._over.wait(EVERY_S):
            found = [self._tracker.getStageInfo(stage) for stage in sorted(self._tracker.getActiveStageIds())]
            stages = [
                f"stage {stage.stageId}: {stage.numCompletedTasks} of {stage.numTasks} tasks"
                for stage in found
                if stage
            ]
            if stages:
                tell(", ".join(stages))
