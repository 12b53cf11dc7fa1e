"""Parameters of synthetic applications."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

Tasks = Annotated[int, Meta(ge=1, le=1_000)]
Operators = Annotated[int, Meta(ge=1, le=1_000)]

LOADS = {"balanced": (100, 10.0), "cpu": (100, 100.0), "io": (8_192, 0.0)}
"""Load -> bytes of a tuple's payload, microseconds of CPU per tuple and stage."""


@dataclass(frozen=True)
class SyntheticParams:
    """Common parameters.

    Attributes:
        load: `balanced`, `cpu` (100 us per tuple) or `io` (8 KiB per tuple); the next two override it.
        tuple_bytes: bytes of a tuple's payload.
        cost_us: CPU per tuple in every bolt, in microseconds of the controller's CPU.
        selectivity: tuples that every bolt but sinks makes of one, on average.
        workers: requested slots.
    """

    load: Literal["balanced", "cpu", "io"] = "balanced"
    tuple_bytes: Annotated[int, Meta(ge=0, le=1 << 20)] | None = None
    cost_us: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    selectivity: Annotated[float, Meta(gt=0, le=100)] = 1.0
    workers: Annotated[int, Meta(ge=1)] = 5

    @property
    def payload(self) -> int:
        """Bytes of a tuple's payload."""
        return LOADS[self.load][0] if self.tuple_bytes is None else self.tuple_bytes

    @property
    def cost(self) -> float:
        """Microseconds of CPU per tuple."""
        return LOADS[self.load][1] if self.cost_us is None else self.cost_us


@dataclass(frozen=True)
class LinearParams(SyntheticParams):
    """A chain.

    Attributes:
        operators: length of the chain, source and sink included.
        tasks: executors of each.
    """

    operators: Annotated[int, Meta(ge=2, le=1_000)] = 4
    tasks: Tasks = 8


@dataclass(frozen=True)
class DiamondParams(SyntheticParams):
    """A source, operators side by side, a sink.

    Attributes:
        operators: operators side by side.
        tasks: executors of each component.
    """

    operators: Operators = 3
    tasks: Tasks = 8


@dataclass(frozen=True)
class StarParams(SyntheticParams):
    """Sources, one operator in the middle, sinks.

    Attributes:
        sources, sinks: number of each.
        source_tasks: executors of each source.
        tasks: executors of each other component.
    """

    sources: Operators = 2
    sinks: Operators = 2
    source_tasks: Tasks = 4
    tasks: Tasks = 8


@dataclass(frozen=True)
class RandomDagParams(SyntheticParams):
    """A random layered graph with skewed rates.

    Attributes:
        executors: total number of executors.
        layers: layers of components; 0: about the cube root of `executors`.
        widest: maximum number of executors of a component.
        shape_seed: seed of the graph's shape.
    """

    executors: Annotated[int, Meta(ge=2, le=10_000)] = 40
    layers: Annotated[int, Meta(ge=0, le=100)] = 4
    widest: Annotated[int, Meta(ge=1, le=100)] = 6
    shape_seed: Annotated[int, Meta(ge=0)] = 1

    def __post_init__(self) -> None:
        """Check values together.

        Raises:
            ValueError: there are more layers than executors.
        """
        if self.layers > self.executors:
            raise ValueError(f"layers: got {self.layers}, expected at most the {self.executors} executors")
        if self.layers == 1:
            raise ValueError("layers: got 1, expected 0 or at least 2: sources and sinks")
