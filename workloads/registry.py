"""Workloads by name, with checked parameters and runnable topologies."""

from collections.abc import Mapping
from typing import Any

from inventory.documents import Document, Steps, to_plain
from inventory.errors import InputError, UnfitError
from inventory.params import parameters
from inventory.plugins import load_plugin
from workloads.topology import ACKER, DEFAULT_STREAM, Component, Input, Topology, topology_of
from workloads.workload import Workload

GROUP = "millrace.workloads"
"""Entry-point group under which packages register workload classes."""


def load_workload(name: str, params: Mapping[str, Any]) -> Workload:
    """Return the workload `name` with plain parameters; missing ones have their defaults.

    Raises:
        InputError: an unknown workload or parameter (with the nearest one), a value that is not allowed, or a topology
            that cannot run.
        UnfitError: the workload's package cannot be loaded or gives something else.
    """
    return workload_of(name, (Document(f"parameters of workload {name!r}", params), ()))


def workload_of(name: str, *sources: tuple[Document, Steps]) -> Workload:
    """Return the workload like `load_workload`, with parameters from documents, so that errors name their lines."""
    kind = load_plugin(GROUP, name)
    made = kind(parameters(kind.Params, *sources))
    if not isinstance(made, Workload):
        raise UnfitError(f"the workload {name!r} ({kind.__module__}) lacks part of the interface")
    check_runnable(made.topology())
    return made


def check_runnable(topology: Topology) -> None:
    """Check what a topology needs beyond being well-formed, so that it can run.

    Raises:
        InputError: names the component and what is wrong with it.
    """
    source = f"topology {topology.id!r}"
    # Unlike a document, values built in Python were not checked against the declared types and ranges.
    topology = topology_of(Document(source, to_plain(topology)))
    if not any(component.kind == "spout" for component in topology.components):
        raise InputError(f"{source}: has no spout")
    for component in topology.components:
        _check(source, topology, component)
    _ = topology.order


def _check(source: str, topology: Topology, component: Component) -> None:
    who = f"{source}: {component.kind} {component.id!r}"
    if component.kind == "spout" and set(component.outputs or {}) != {DEFAULT_STREAM}:
        raise InputError(f"{who}: a spout declares one output, the stream {DEFAULT_STREAM!r}")
    if component.kind == "bolt" and not component.inputs and component.id != ACKER:
        raise InputError(f"{who}: has no input, so it would never do anything")
    seen: set[tuple[str, str]] = set()
    for entry in component.inputs:
        if (entry.source, entry.stream) in seen:
            raise InputError(f"{who}: subscribes twice to the stream {entry.stream!r} of {entry.source!r}")
        seen.add((entry.source, entry.stream))
        _check_input(who, topology.component[entry.source], entry)


def _check_input(who: str, source: Component, entry: Input) -> None:
    if not source.outputs:
        raise InputError(f"{who}: its input {source.id!r} declares no outputs")
    schema = source.outputs[entry.stream]
    if entry.grouping == "direct":
        field = entry.fields[0] if entry.fields else next(iter(schema), "")
        if schema.get(field) != "int":
            raise InputError(f"{who}: a direct grouping needs an int field of {source.id!r} that names the executor")
