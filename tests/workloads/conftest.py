"""Simulation of a cluster in one thread: runs the operators of a workload in random order, with random batches."""

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from inventory.plugins import plugins
from workloads.key_groups import KeyRouter, first_owners
from workloads.operator_state import OperatorState
from workloads.operators import Batch, Bolt, Combining, Context, Operator, Row, Spout
from workloads.topology import ACKER, Executor, Input
from workloads.workload import GROUP, Answer, PreparedInput, Workload


class Simulation:
    """Executors of a topology; `step` performs a random action that is possible in a real cluster."""

    def __init__(self, workload: Workload, inputs: Sequence[PreparedInput], seed: int) -> None:
        self.workload, self.inputs = workload, inputs
        self.random = random.Random(seed)  # noqa: S311  a repeatable order, no secret
        self.topology = workload.topology()
        self.executors = [e for e in self.topology.executors if e.component != ACKER]
        self.operators = {executor: self._open(executor) for executor in self.executors}
        self.positions = dict.fromkeys((e for e in self.executors if self._is_spout(e)), 0)
        self.queues: dict[Executor, deque[Batch]] = {e: deque() for e in self.executors}

    def _is_spout(self, executor: Executor) -> bool:
        return self.topology.component[executor.component].kind == "spout"

    def _open(self, executor: Executor) -> Operator:
        operator = self.workload.operator(executor.component)
        parallelism = self.topology.component[executor.component].parallelism
        inputs = {entry.name: str(entry.path) for entry in self.inputs}
        operator.open(Context(executor.component, executor.index, parallelism, inputs=inputs))
        return operator

    def step(self) -> None:
        """Let a random executor emit, process one batch, or restore its own snapshot."""
        executor = self.random.choice(self.executors)
        operator = self.operators[executor]
        if self.random.random() < 0.1:
            again = self._open(executor)
            OperatorState(again).restore(OperatorState(operator).snapshot())
            operator.close()
            self.operators[executor] = again
        elif isinstance(operator, Spout):
            rows = operator.next_batch(self.random.randint(1, 40))
            self.positions[executor] += len(rows)
            self._route(executor, "default", rows)
        else:
            self._process(executor)

    def _process(self, executor: Executor) -> None:
        operator = self.operators[executor]
        if self.queues[executor]:
            assert isinstance(operator, Bolt)
            for stream, rows in operator.process(self.queues[executor].popleft()).items():
                self._route(executor, stream, rows)

    def _route(self, sender: Executor, stream: str, rows: Sequence[Row]) -> None:
        declared = self.topology.component[sender.component].outputs
        assert declared is not None
        assert stream in declared
        fields = list(declared[stream])
        assert all(len(row) == len(fields) for row in rows)
        for source, destination, entry in self.topology.links():
            if (source.id, entry.stream) == (sender.component, stream):
                subscriber = self.workload.operator(destination.id)
                # Some rows are sampled, and bypass combining.
                cut = self.random.randint(0, len(rows)) if isinstance(subscriber, Combining) else 0
                combined = [*subscriber.combine(rows[:cut]), *rows[cut:]] if cut else rows
                parts = self._split(entry, fields, combined, destination.parallelism)
                for index, part in enumerate(parts):
                    self._queue(Executor(destination.id, index), sender.component, stream, part)

    def _split(self, entry: Input, fields: list[str], rows: Sequence[Row], parallelism: int) -> list[list[Row]]:
        parts: list[list[Row]] = [[] for _ in range(parallelism)]
        route = KeyRouter(first_owners(parallelism))
        places = [fields.index(name) for name in entry.fields]
        for row in rows:
            key = tuple(row[place] for place in places)
            parts[route(key) if entry.grouping == "fields" else self.random.randrange(parallelism)].append(row)
        return parts

    def _queue(self, receiver: Executor, source: str, stream: str, rows: list[Row]) -> None:
        while rows:
            cut = self.random.randint(1, len(rows))
            self.queues[receiver].append(Batch(source, stream, rows[:cut]))
            rows = rows[cut:]

    def answer(self) -> Answer:
        """Drain the topology; return the sinks' answers."""
        while any(self.queues.values()):
            for executor in self.executors:
                self._process(executor)
        tables: dict[str, list[Row]] = {}
        for operator in self.operators.values():
            for part in operator.tables() if isinstance(operator, Bolt) else ():
                rows = list(part.answer())
                assert all(len(row) == len(part.answer_schema) for row in rows)
                tables.setdefault(part.answer_table, []).extend(rows)
        return tables


@pytest.fixture(scope="session")
def simulate() -> Callable[[Workload, Sequence[PreparedInput], int, int], tuple[Answer, Answer]]:
    """Function that runs a workload for some steps and returns its answer and its reference."""

    def run(workload: Workload, inputs: Sequence[PreparedInput], seed: int, steps: int) -> tuple[Answer, Answer]:
        simulation = Simulation(workload, inputs, seed)
        for _ in range(steps):
            simulation.step()
        return simulation.answer(), workload.reference(list(simulation.positions.values()), inputs)

    return run


@pytest.fixture
def install_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str, str], None]]:
    """Function that installs a package with one workload: `install_workload(name, source, class_name)`."""

    def install(name: str, source: str, class_name: str) -> None:
        folder = tmp_path / name
        info = folder / f"{name}_package-1.0.dist-info"
        info.mkdir(parents=True)
        (folder / f"{name}_package.py").write_text(source)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-package\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {name}_package:{class_name}\n")
        monkeypatch.syspath_prepend(folder)
        plugins.cache_clear()

    yield install
    plugins.cache_clear()


@pytest.fixture(scope="session")
def spark() -> Any:
    """Spark session that all tests of pipelines share, because it takes seconds to start."""
    from spark_pipelines import session

    return session()


@pytest.fixture
def pipelines(spark: Any, tmp_path: Path) -> Any:
    """`pipelines(name, source, *params)` runs a pipeline and returns its output."""
    from spark_pipelines import Pipelines

    return Pipelines(spark, tmp_path)
