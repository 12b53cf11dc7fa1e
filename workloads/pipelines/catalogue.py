"""Which pipelines there are; none is imported before it is asked for."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from inventory.errors import InputError, nearest

PIPELINES: Mapping[str, str] = {
    "debs2014-q1": "workloads.pipelines.debs2014_loads:Loads",
    "debs2015-q1": "workloads.pipelines.debs2015_routes:FrequentRoutes",
    "debs2015-q2": "workloads.pipelines.debs2015_areas:ProfitableAreas",
    "prepare": "workloads.pipelines.prepare:Repair",
}

SOCKET = "tcp://"
"""What the address of a stream of lines begins with, in the place of a path."""


def pipeline_named(name: str) -> type[Any]:
    """Return the class of a pipeline.

    Raises:
        InputError: there is none of that name.
    """
    if name not in PIPELINES:
        raise InputError(f"unknown pipeline {name!r}{nearest(name, PIPELINES)}")
    module, _, of = PIPELINES[name].partition(":")
    found: type[Any] = getattr(import_module(module), of)
    return found
