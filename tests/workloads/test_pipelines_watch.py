"""Progress of Spark jobs is printed at regular intervals in every state of Spark."""

from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from workloads.pipelines import spark_session
from workloads.pipelines.spark_session import SparkWatch

TIMEOUT_S = 60


class Spark:
    """Part of a Spark context that the watch uses: active stages and their tasks."""

    def __init__(self) -> None:
        self.stages: dict[int, tuple[int, int]] = {}

    def statusTracker(self) -> "Spark":  # noqa: N802 - Spark's own name
        return self

    def getActiveStageIds(self) -> list[int]:  # noqa: N802
        return [*self.stages, 99]

    def getStageInfo(self, stage: int) -> Any:  # noqa: N802
        if stage not in self.stages:
            return None  # it has ended since
        done, of = self.stages[stage]
        return SimpleNamespace(stageId=stage, numCompletedTasks=done, numTasks=of)


def has_line(lines: "Queue[str]", wanted: str) -> bool:
    """Read lines until one is as wanted; fail after a timeout."""
    while lines.get(timeout=TIMEOUT_S) != wanted:
        pass
    return True


def test_progress_is_printed_while_spark_starts_plans_and_runs_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "EVERY_S", 0.01)
    lines: Queue[str] = Queue()
    spark: Any = Spark()
    with SparkWatch(lines.put) as watch:
        assert has_line(lines, "Spark is starting")
        watch.follow(spark)
        assert has_line(lines, "between two stages")
        spark.stages = {7: (1, 4), 8: (0, 1)}
        assert has_line(lines, "stage 7: 1 of 4 tasks, stage 8: 0 of 1 tasks")
