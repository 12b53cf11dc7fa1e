"""Interface of a workload: topology, operators of its components, data, and reference answer."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import eq
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from inventory.errors import nearest
from workloads.operators import Operator, Row
from workloads.topology import Topology


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
    """

    name: str
    path: Path
    sha256: str
    records: int
    origin: str
    quarantined: Mapping[str, int] = field(default_factory=dict)


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
