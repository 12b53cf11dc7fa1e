"""Pipelines in the test process, on one Spark session for all tests."""

import csv
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession

from analysis.tables.java import spark_environment
from analysis.tables.submit import QUICK_START, kept_classes
from workloads.pipelines import run_pipeline
from workloads.pipelines.run_pipeline import SETTINGS, Asked, execute_pipeline

Row = tuple[str | None, ...]


def session() -> SparkSession:
    """Return a session with two cores and fast Java start-up, for small data."""
    os.environ.update(spark_environment() | {"SPARK_LOCAL_IP": "127.0.0.1"})
    builder = SparkSession.builder.master("local[2]").appName("tests")
    with kept_classes(os.environ, make=False) as classes:
        java = " ".join([*QUICK_START, *classes.options])
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": java,
        **SETTINGS,
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


class Pipelines:
    """Runs pipelines as the job does, on the existing session."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder
        self._count = 0

    def __call__(self, name: str, source: Path | str, *params: str, kind: Any = "csv", stream: bool = False) -> Path:
        """Run a pipeline; return the folder of its output."""
        self._count += 1
        output = self._folder / f"output-{self._count}"

        @contextmanager
        def here(_name: str) -> Iterator[SparkSession]:
            self._spark.catalog.clearCache()
            yield self._spark

        with patch.object(run_pipeline, "session", here):
            execute_pipeline(Asked(name, str(source), output, params, kind, stream))
        return output


def table(output: Path, name: str) -> list[Row]:
    """Return the rows of a CSV table in order, without the header; NULL is None."""
    rows: list[Row] = []
    for part in sorted((output / name).glob("part-*")):
        with part.open(newline="") as file:
            _, *lines = csv.reader(file)
            rows += [tuple(None if field == "NULL" else field for field in line) for line in lines]
    return rows
