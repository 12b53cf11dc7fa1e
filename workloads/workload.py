"""Interface of a workload (topology, operators of its components, data, reference answer), and workloads by name."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from operator import eq
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from inventory.documents import Document, Located, Origin, read, to_plain
from inventory.errors import InputError, RunError, UnfitError, nearest
from inventory.foreign import printable
from inventory.plugins import load_plugin, parameters, plain_parameters, plugins
from workloads.columns import ColumnBolt, ColumnSpout
from workloads.operators import Operator, Row
from workloads.topology import ACKER, DEFAULT_STREAM, Component, Input, Topology, checked_topology, topology_of


@dataclass(frozen=True)
class PreparedInput:
    """A file prepared once by the controller and copied to every node.

    Attributes:
        name: key of its path in `Context.inputs`.
        path: path on the controller.
        sha256: checksum in hex; a node rejects a copy that differs.
        records: number of records in it.
        origin: one line about the origin of the data, for the report.
        quarantined: rows of the source left out, by class (`malformed`, `outlier`, `out_of_order`).
        is_measured: whether it is measured, so that it differs whenever it is prepared again. A campaign keeps it for
            its later runs: `prepare` then finds the file in its folder.
    """

    name: str
    path: Path
    sha256: str
    records: int
    origin: str
    quarantined: Mapping[str, int] = field(default_factory=dict)
    is_measured: bool = False


@dataclass(frozen=True)
class Verdict:
    """Result of comparing an answer with its reference.

    Attributes:
        passed: whether they are equal.
        checked: number of rows of the reference answer compared.
        message: the first differences; empty when passed.
    """

    passed: bool
    checked: int
    message: str = ""


Answer = Mapping[str, Sequence[Row]]
"""Table -> rows of the answer, all sinks together, in no particular order."""


@runtime_checkable
class Workload(Protocol):
    """Interface of a workload class; instances are created from checked parameters.

    `Params` is a frozen dataclass with defaults; its annotations (also `Annotated` with `msgspec.Meta`) are what
    the parameters of an agenda are checked against. `__post_init__` raises a `ValueError` for inconsistent values.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    paper: ClassVar[str]
    Params: ClassVar[type]
    params: Any

    def __init__(self, params: Any) -> None:
        """Keep `params`, an instance of `Params`; read no file, because nodes create instances too."""
        ...

    def topology(self) -> Topology:
        """Return the application's graph; components declare their `outputs`."""
        ...

    def operator(self, component: str) -> Operator:
        """Return a new, unopened operator for an executor of `component`."""
        ...

    def prepare(self, folder: Path) -> Sequence[PreparedInput]:
        """Prepare the input in `folder` (kept between runs) and describe it.

        Raises:
            InputError: the input that the parameters name cannot be used.
        """
        ...

    def reference(self, positions: Sequence[int], inputs: Sequence[PreparedInput]) -> Answer:
        """Return the correct answer when spout executor i has emitted `positions[i]` records.

        Computed by other means than the operators: no operator code may be used here.
        """
        ...

    def compare(self, answer: Answer, reference: Answer) -> Verdict:
        """Compare an answer with the reference."""
        ...


def uses_columns(workload: Workload, topology: Topology) -> bool:
    """Return whether operators of the workload process columns, for which workers need Arrow."""
    operators = (workload.operator(component.id) for component in topology.components if component.id != ACKER)
    return any(isinstance(operator, ColumnBolt | ColumnSpout) for operator in operators)


def filled(given: Mapping[str, int], defaults: Mapping[str, int]) -> Mapping[str, int]:
    """Return executors per component: `defaults` overridden by `given`.

    Raises:
        ValueError: an unknown component (with the nearest one), or fewer than one executor.
    """
    for component, parallelism in given.items():
        if component not in defaults:
            raise ValueError(f"parallelism: unknown component {component!r}{nearest(component, defaults)}")
        if parallelism < 1:
            raise ValueError(f"parallelism.{component}: got {parallelism}, expected at least 1")
    return {**defaults, **given}


def rows_differ(
    answer: Iterable[Row],
    reference: Iterable[Row],
    key_fields: int,
    most: int = 3,
    same: Callable[[Row, Row], bool] = eq,
) -> list[str]:
    """Compare two keyed answers in full; return at most `most` differences as text, none when equal.

    Args:
        answer: rows of the sinks; their first `key_fields` fields are the key.
        reference: rows of the reference.
        key_fields: number of leading fields that make the key.
        most: maximum number of differences listed.
        same: whether two values, the fields after the key, are equal.
    """
    differences: list[str] = []
    expected = {tuple(row[:key_fields]): tuple(row[key_fields:]) for row in reference}
    seen: set[Row] = set()
    for row in answer:
        key, value = tuple(row[:key_fields]), tuple(row[key_fields:])
        if key in seen:
            differences.append(f"{key} is in the answer twice")
        elif key not in expected:
            differences.append(f"{key} = {value} is not in the reference")
        elif not same(expected[key], value):
            differences.append(f"{key} = {value}, the reference has {expected[key]}")
        seen.add(key)
    differences.extend(f"{key} is missing" for key in expected if key not in seen)
    return differences[:most]


Listener = Callable[[float], None]
"""Called with the completed share, 0..1."""


def _nobody(_share: float) -> None:
    pass


_LISTENER: ContextVar[Listener] = ContextVar("listener", default=_nobody)


def report_progress(share: float) -> None:
    """Report that `share` of the preparation is done; for `Workload.prepare`."""
    _LISTENER.get()(share)


@contextmanager
def reporting_to(listener: Listener) -> Iterator[None]:
    """Send progress reports to `listener` inside the block."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


GROUP = "millrace.workloads"
"""Entry-point group under which packages register workload classes."""


def load_workload(name: str, params: Mapping[str, Any]) -> Workload:
    """Return the workload `name` with plain parameters; missing ones have their defaults.

    Raises:
        InputError: an unknown workload or parameter (with the nearest one), a value that is not allowed, or a topology
            that cannot run.
        UnfitError: the workload's package cannot be loaded or gives something else.
    """
    return workload_of(name, plain_parameters(params, f"parameters of workload {name!r}"))


def workload_of(name: str, *sources: Origin) -> Workload:
    """Return the workload like `load_workload`, with parameters from files, so that errors name their lines."""
    kind = load_plugin(GROUP, name)
    made = kind(parameters(kind.Params, *sources))
    if not isinstance(made, Workload):
        raise UnfitError(f"the workload {name!r} ({kind.__module__}) lacks part of the interface")
    check_runnable(made.topology())
    return made


def find_topology(name_or_path: str) -> Located[Topology]:
    """Return the topology of a file, else that of the workload of this name with its default parameters.

    Raises:
        InputError: there is neither, or the file is invalid.
        UnfitError: the workload's package cannot be loaded.
    """
    path = Path(name_or_path)
    if path.is_file() or (path.exists() and name_or_path not in plugins(GROUP)):
        return topology_of(read(path))
    if name_or_path not in plugins(GROUP):
        hint = nearest(name_or_path, plugins(GROUP))
        raise InputError(f"{printable(name_or_path)}: there is no such file, and no workload of that name{hint}")
    topology = load_workload(name_or_path, {}).topology()
    return topology_of(Document(f"topology of the workload {name_or_path!r}", to_plain(topology)))


def check_runnable(topology: Topology) -> None:
    """Check what a topology needs beyond being well-formed, so that it can run.

    Raises:
        InputError: names the component and what is wrong with it.
    """
    source = f"topology {topology.id!r}"
    # Unlike a file, values built in Python were not checked against the declared types and ranges.
    topology = checked_topology(topology, source)
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


def source_positions(topology: Topology, positions: Mapping[str, int]) -> list[int]:
    """Return the positions of all spout executors in the topology's order.

    Raises:
        RunError: a position is missing.
    """
    spouts = [e.name for e in topology.executors if topology.component[e.component].kind == "spout"]
    missing = [name for name in spouts if name not in positions]
    if missing:
        raise RunError(f"the positions of {', '.join(missing)} are missing")
    return [positions[name] for name in spouts]


def verified(workload: Workload, answer: Answer, positions: Sequence[int], inputs: Sequence[PreparedInput]) -> Verdict:
    """Compare an answer with the reference for `positions`, the highest ones of spout executors.

    A run that emitted records fails if no row was compared, unless its reference is empty.
    """
    reference = workload.reference(positions, inputs)
    verdict = workload.compare(answer, reference)
    rows = sum(len(table) for table in reference.values())
    if verdict.checked or not verdict.passed or not rows or not any(positions):
        return verdict
    return Verdict(False, 0, f"{sum(positions)} records were emitted, and none of {rows} rows of the reference checked")
