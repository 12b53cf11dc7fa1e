"""Writer of the table `energy`, which also sums up a run's energy by consumer."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet

from agents.trace import TABLES
from campaign.results.cpu_times import Worker
from campaign.results.energy_consumers import CLAMPED, EnergyShare

ROWS_HELD = 50_000

CONSUMERS = {"executor": "executors", "transport": "transport", "rest": "rest", "idle": "idle"}
"""Consumer in the table -> its name in `run.json`."""


class EnergyTable:
    """Context manager; the table is complete when the block ends without an exception.

    Attributes:
        consumers: joules by kind, named as in `run.json`.
        executors: joules by worker and executor.
        transport: joules by worker.
        clamped: nodes with a clamped step.
    """

    def __init__(self, traces: Path, run: str) -> None:
        """Create the table in the folder of a run's traces."""
        self._run = run
        self._final, self._partial = traces / "energy.parquet", traces / ".energy.parquet.partial"
        self._held: list[EnergyShare] = []
        self.consumers: dict[str, float] = dict.fromkeys(CONSUMERS.values(), 0.0)
        self.executors: defaultdict[tuple[Worker, str], float] = defaultdict(float)
        self.transport: defaultdict[Worker, float] = defaultdict(float)
        self.clamped: set[str] = set()

    def __enter__(self) -> Self:
        self._writer = pyarrow.parquet.ParquetWriter(self._partial, TABLES["energy"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._writer:
            if fault is None:
                self._flush()
        if fault is None:
            self._partial.rename(self._final)
        else:
            self._partial.unlink()

    def add(self, parts: Iterable[EnergyShare]) -> None:
        """Add rows."""
        for part in parts:
            self.consumers[CONSUMERS[part.consumer]] += part.joules
            if part.consumer == "executor":
                self.executors[(part.node, part.worker), part.name] += part.joules
            elif part.consumer == "transport":
                self.transport[part.node, part.worker] += part.joules
            if CLAMPED in part.flags:
                self.clamped.add(part.node)
            self._held.append(part)
            if len(self._held) >= ROWS_HELD:
                self._flush()

    def _flush(self) -> None:
        held, self._held = self._held, []
        if held:
            schema = TABLES["energy"]
            columns = [[self._run] * len(held), *zip(*held, strict=True)]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            self._writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
