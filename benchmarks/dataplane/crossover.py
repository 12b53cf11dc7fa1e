"""From how many rows on a batch costs less as columns than as rows.

    python benchmarks/dataplane/crossover.py [--rounds 9] [--figure docs/dataplane/crossover.svg]

One process, without links: the executors `split` and `count` of word count, each with its channels and its fields
grouping, get batches of equal size, lines or words, as rows or as columns; words as columns have a dictionary that grew
before, as the grouping sends them. Sizes and interfaces alternate in every round; printed are the least CPU times per
row of all rounds, what converting a batch costs at a border, and the least size from which columns are cheaper.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest import mock

import psutil
import pyarrow as pa

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))

from turns import Below, channel_into

from agents.worker.channels.groupings import Fields, Router
from agents.worker.channels.input_gate import InputGate
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.columns import ColumnBoltExecutor
from workloads import columns as column_operators
from workloads.apps.wordcount import Count, Split
from workloads.apps.wordcount_columns import ColumnCount, ColumnSplit
from workloads.columns import ColumnBolt, Columns
from workloads.dictionaries import DictionaryEncoder
from workloads.key_groups import first_owners
from workloads.operators import Bolt, Row
from workloads.topology import Executor

SIZES = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)
ROWS_PER_ROUND = 8192
LINES, WORDS = {"line": "str"}, {"word": "str"}

Turn = Callable[[Sequence[Row]], None]


def turn_of(bolt: Bolt, received: dict[str, str], emitted: dict[str, str]) -> Turn:
    """A function that has an executor of `bolt` process one batch, and takes what it emits off two channels."""
    inputs, below = InputGate(), [Below(), Below()]
    incoming = channel_into(inputs)
    grouping = Fields([each.outgoing for each in below], first_owners(2), (0,), len(emitted)) if emitted else None
    streams = {"default": [] if grouping is None else [grouping]}
    router = Router("b[0]", streams, [each.outgoing for each in below])
    me = Executor("b", 0)
    if isinstance(bolt, ColumnBolt):
        schemas = {("a", "default"): received}, {"default": emitted}
        executor: BoltExecutor = ColumnBoltExecutor(0, me, bolt, router, inputs, *schemas)
    else:
        executor = BoltExecutor(0, me, bolt, router, inputs)

    def turn(rows: Sequence[Row]) -> None:
        incoming.deliver(rows, (), 0)
        executor.turn(0)
        for each in below:
            each.outgoing.flush()
            each.consume()

    return turn


def ns_per_row(turn: Turn, batches: Sequence[Sequence[Row]]) -> float:
    """CPU time per row."""
    began = time.thread_time_ns()
    for batch in batches:
        turn(batch)
    return (time.thread_time_ns() - began) / sum(map(len, batches))


def measured(lines: Sequence[Row], words: Sequence[Row], rounds: int) -> dict[tuple[str, str, int], float]:
    """The least nanoseconds per row by operator, interface and size of a batch."""
    least: dict[tuple[str, str, int], float] = {}
    ways: list[tuple[str, str, Bolt, dict[str, str], dict[str, str]]] = [
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

    turns = [(name, api, turn_of(bolt, *schemas), schemas[0]) for name, api, bolt, *schemas in ways]
    for _ in range(rounds):
        for size in SIZES:
            for name, api, turn, schema in turns:
                rows = lines if name == "split" else words
                batches = [rows[at : at + size] for at in range(0, len(rows) - size + 1, size)]
                columns = [Columns.of_rows(schema, batch) for batch in batches]
                given = batches if api == "rows" else columns if name == "split" else list(map(encoded, columns))
                found = {api: ns_per_row(turn, given)}
                if api == "columns":
                    found["rows to columns"] = ns_per_row(lambda part, s=schema: Columns.of_rows(s, part), batches)
                    found["columns to rows"] = ns_per_row(Columns.to_rows, columns)
                for what, cost in found.items():
                    least[name, what, size] = min(cost, least.get((name, what, size), cost))
    return least


def draw(least: dict[tuple[str, str, int], float], path: Path) -> None:
    """Draw the costs of rows and columns by size."""
    from matplotlib import pyplot as plt

    plt.rcParams |= {"svg.hashsalt": "crossover", "svg.fonttype": "none"}
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharex=True, layout="constrained")
    for axis, name, unit in zip(axes, ("split", "count"), ("line", "word"), strict=True):
        for api in ("rows", "columns"):
            axis.loglog(SIZES, [least[name, api, size] / 1e3 for size in SIZES], marker="o", label=api)
        axis.set(title=name, xlabel=f"{unit}s in a batch", ylabel=f"CPU time per {unit}, µs")
        axis.legend()
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--figure", type=Path, help="an SVG file to write")
    options = parser.parse_args()
    # Text like that of a document: words as frequent and as long as in books, eleven in a line.
    from workloads.generate.book_lines import book_lines

    text = [line for batch in book_lines(ROWS_PER_ROUND, 1) for line in batch.column(0).to_pylist()]
    lines: list[Row] = [(line,) for line in text]
    words: list[Row] = [(word,) for line in text for word in line.split()][:ROWS_PER_ROUND]
    with mock.patch.object(column_operators, "rows_below", return_value=0):
        least = measured(lines, words, options.rounds)
    print(f"load {psutil.getloadavg()[0]:.1f}; CPU us per row, the least of {options.rounds} rounds")
    ways = ("rows", "columns", "rows to columns", "columns to rows")
    for name in ("split", "count"):
        print(f"\n| {name}: rows of a batch | {' | '.join(ways)} |\n|---|---|---|---|---|")
        for size in SIZES:
            print(f"| {size:,} | {' | '.join(f'{least[name, way, size] / 1e3:.2f}' for way in ways)} |")
        cheaper = [size for size in SIZES if least[name, "columns", size] <= least[name, "rows", size]]
        print(f"\ncolumns are cheaper from {cheaper[0]} rows on" if cheaper else "\ncolumns are never cheaper")
    if options.figure is not None:
        draw(least, options.figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
