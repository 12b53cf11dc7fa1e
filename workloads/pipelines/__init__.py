"""Spark data pipelines over the recordings of the DEBS challenges.

`input_splits` and `reading` turn raw files into accepted rows by the rules of `workloads.recordings`, reduced to what a
query needs; the query (`pipeline`) turns them into tables, at once or piece by piece. `prepare` reads raw
rows through `lines`, which also explains malformed ones. `run_pipeline` connects all of it, and `job` is the program
that spark-submit starts. Pipelines are imported on demand. The folder of `job` comes first on Python's path, so modules
here have names that no package has.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from inventory.errors import InputError, nearest

PIPELINES: Mapping[str, str] = {
    "debs2014-q1": "workloads.pipelines.debs2014_loads:LoadsPipeline",
    "debs2015-q1": "workloads.pipelines.debs2015:FrequentRoutes",
    "debs2015-q2": "workloads.pipelines.debs2015:ProfitableAreas",
    "prepare": "workloads.pipelines.prepare:Repair",
}

SOCKET = "tcp://"
"""Prefix of the address of a stream of lines, in place of a path."""


def pipeline_named(name: str) -> type[Any]:
    """Return the class of a pipeline.

    Raises:
        InputError: no pipeline has this name.
    """
    if name not in PIPELINES:
        raise InputError(f"unknown pipeline {name!r}{nearest(name, PIPELINES)}")
    module, _, of = PIPELINES[name].partition(":")
    pipeline: type[Any] = getattr(import_module(module), of)
    return pipeline
