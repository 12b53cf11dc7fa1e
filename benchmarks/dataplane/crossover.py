"""Measure from which batch size columns cost less CPU time than rows.

    python benchmarks/dataplane/crossover.py [--rounds 9] [--figure docs/dataplane/crossover.svg]

One process without links runs the executors `split` and `count` of word count, each with its channels and its fields
grouping. They process batches of equal size, lines or words, as rows or as columns. Columns of words have a dictionary
that is already filled, as the grouping sends them. Every round measures all sizes and interfaces. The output is the
minimum CPU time per row of all rounds, the cost of converting a batch from one kind to the other, and the smallest
size from which columns are cheaper.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence, Sized
from functools import partial
from pathlib import Path
from typing import TypeVar
from unittest import mock

import psutil
import pyarrow as pa

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))

from executor_harness import Downstream, input_channel

from agents.worker.channels.groupings import Fields, Router
from agents.worker.channels.input_gate import InputGate
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.columns import ColumnBoltExecutor
from workloads import columns as column_operators
from workloads.apps.wordcount_columns import ColumnCount, ColumnSplit
from workloads.apps.wordcount_operators import Count, Split
from workloads.columns import ColumnBolt, Columns
from workloads.dictionaries import DictionaryEncoder
from workloads.key_groups import first_owners
from workloads.operators import Bolt, Row
from workloads.topology import Executor

SIZES = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)
ROWS_PER_ROUND = 8192
LINES, WORDS = {"line": "str"}, {"word": "str"}

ProcessBatch = Callable[[Sequence[Row]], None]
T = TypeVar("T", bound=Sized)


def batch_processor(bolt: Bolt, received: dict[str, str], emitted: dict[str, str]) -> ProcessBatch:
    """Return a function that processes a batch in an executor of `bolt` and consumes the output of its two channels."""
    inputs, downstream = InputGate(), [Downstream(), Downstream()]
    incoming = input_channel(inputs)
    grouping = Fields([each.outgoing for each in downstream], first_owners(2), (0,), len(emitted)) if emitted else None
    streams = {"default": [] if grouping is None else [grouping]}
    router = Router("b[0]", streams, [each.outgoing for each in downstream])
    name = Executor("b", 0)
    if isinstance(bolt, ColumnBolt):
        schemas = {("a", "default"): received}, {"default": emitted}
        executor: BoltExecutor = ColumnBoltExecutor(0, name, bolt, router, inputs, *schemas)
    else:
        executor = BoltExecutor(0, name, bolt, router, inputs)

    def process(rows: Sequence[Row]) -> None:
        incoming.deliver(rows, (), 0)
        executor.turn(0)
        for each in downstream:
            each.outgoing.flush()
            each.consume()

    return process


def ns_per_row(process: Callable[[T], object], batches: Sequence[T]) -> float:
    """Return the CPU time per row."""
    began = time.thread_time_ns()
    for batch in batches:
        process(batch)
    return (time.thread_time_ns() - began) / sum(map(len, batches))


def measure(lines: Sequence[Row], words: Sequence[Row], rounds: int) -> dict[tuple[str, str, int], float]:
    """Return the minimum nanoseconds per row, by operator, interface and batch size."""
    minima: dict[tuple[str, str, int], float] = {}
    cases: list[tuple[str, str, Bolt, dict[str, str], dict[str, str]]] = [
        ("split", "rows", Split(), LINES, WORDS),
        ("split", "columns", ColumnSplit(), LINES, WORDS),
        ("count", "rows", Count(), WORDS, {}),
        ("count", "columns", ColumnCount(), WORDS, {}),
    ]
    encoder = DictionaryEncoder(pa.string())
    encoder.codes_of(Columns.of_rows(WORDS, words).batch().column(0).unique())

    def encoded(columns: Columns) -> Columns:
        column = encoder.encode(columns.batch().column(0))
        return Columns(WORDS, pa.RecordBatch.from_arrays([column], names=["word"]))

    processors = [(name, api, batch_processor(bolt, *schemas), schemas[0]) for name, api, bolt, *schemas in cases]
    for _ in range(rounds):
        for size in SIZES:
            for name, api, process, schema in processors:
                rows = lines if name == "split" else words
                batches = [rows[at : at + size] for at in range(0, len(rows) - size + 1, size)]
                columns = [Columns.of_rows(schema, batch) for batch in batches]
                inputs = batches if api == "rows" else columns if name == "split" else list(map(encoded, columns))
                costs = {api: ns_per_row(process, inputs)}
                if api == "columns":
                    costs["rows to columns"] = ns_per_row(partial(Columns.of_rows, schema), batches)
                    costs["columns to rows"] = ns_per_row(Columns.to_rows, columns)
                for kind, cost in costs.items():
                    minima[name, kind, size] = min(cost, minima.get((name, kind, size), cost))
    return minima


def draw(minima: dict[tuple[str, str, int], float], path: Path) -> None:
    """Draw the costs of rows and columns by batch size."""
    from matplotlib import pyplot as plt

    plt.rcParams |= {"svg.hashsalt": "crossover", "svg.fonttype": "none"}
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharex=True, layout="constrained")
    for axis, name, unit in zip(axes, ("split", "count"), ("line", "word"), strict=True):
        for api in ("rows", "columns"):
            axis.loglog(SIZES, [minima[name, api, size] / 1e3 for size in SIZES], marker="o", label=api)
        axis.set(title=name, xlabel=f"{unit}s in a batch", ylabel=f"CPU time per {unit}, µs")
        axis.legend()
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--figure", type=Path, help="write a figure to this SVG file")
    options = parser.parse_args()
    # Word frequencies and lengths are those of books; a line has eleven words.
    from workloads.generate.book_lines import book_lines

    text = [line for batch in book_lines(ROWS_PER_ROUND, 1) for line in batch.column(0).to_pylist()]
    lines: list[Row] = [(line,) for line in text]
    words: list[Row] = [(word,) for line in text for word in line.split()][:ROWS_PER_ROUND]
    with mock.patch.object(column_operators, "rows_below", return_value=0):
        minima = measure(lines, words, options.rounds)
    print(f"load {psutil.getloadavg()[0]:.1f}; CPU us per row, minimum of {options.rounds} rounds")
    kinds = ("rows", "columns", "rows to columns", "columns to rows")
    for name in ("split", "count"):
        print(f"\n| {name}: rows per batch | {' | '.join(kinds)} |\n|---|---|---|---|---|")
        for size in SIZES:
            print(f"| {size:,} | {' | '.join(f'{minima[name, kind, size] / 1e3:.2f}' for kind in kinds)} |")
        cheaper = [size for size in SIZES if minima[name, "columns", size] <= minima[name, "rows", size]]
        print(f"\ncolumns are cheaper from {cheaper[0]} rows on" if cheaper else "\ncolumns are never cheaper")
    if options.figure is not None:
        draw(minima, options.figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
