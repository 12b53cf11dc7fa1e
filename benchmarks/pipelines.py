"""Rows per second and memory of the pipelines, beside DuckDB, Polars and pandas at the same queries in the same run.

    python benchmarks/pipelines.py [--rows 10000000] [--only QUERY ...] [--by NAME ...] [--parts 10] [--folder DIR]

The rows are generated, and lie in parts of CSV. Each system is a process that reads them all and writes its answer as
Parquet, so that its start counts, on two threads (pandas has one); Spark is `millrace pipeline --master local[2]`, in
one go and, where asked for as `--by "spark --stream"`, part by part. CPU seconds and memory are those of all processes
of a system, memory is proportional (what is shared counts once). Every answer is compared with the first one's. Spark
is then compared with pandas, and with the better one of DuckDB and Polars, by the clock and by CPU time; where others
are at work on the machine, only the latter tells something. Peers get an environment of their own, made at the first
call, and Spark its archive of classes.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

HERE = Path(__file__).parent
sys.path += [str(HERE / "dataplane"), str(HERE / "queries")]

from peers import environment, measured  # noqa: E402
from terms import DAY_S, LISTED, SLICES  # noqa: E402

from workloads.generate.smart_plugs import smart_plugs  # noqa: E402
from workloads.generate.taxi_trips import taxi_trips  # noqa: E402
from workloads.generate.writing import write_rows  # noqa: E402

PACKAGES = ("duckdb==2.0.0", "polars==2.1.0", "pandas==3.1.1", "pyarrow==26.0.1")
COMMAND = (sys.executable, "-c", "from millrace.__main__ import main; main()", "pipeline")
PARAMS = {"debs2014-q1": (f"slices={','.join(map(str, SLICES))}", f"day_s={DAY_S}")}
QUERIES = ("debs2014-q1", "debs2015-q1", "debs2015-q2")
SPARK = ("spark", "spark --stream")
PEERS = ("duckdb", "polars", "pandas")

ORDER = {"house": ["tick", "slice_s", "house_id"]}
ORDER["plug"] = [*ORDER["house"], "household_id", "plug_id"]
"""Of the tables of DEBS 2014; the others are in order of ticks and places."""

SAME = 1e-9
"""Relative: sums of decimals depend on their order."""

PRINTED = 1e-6
"""Dollars: ours are rounded to so many."""


THEIRS = {"end": "finish", "count": "trips"}
"""Names of our columns that are others there."""


def generated(query: str, rows: int, parts: int, folder: Path) -> Path:
    """The parts, made if need be."""
    schema, _, _ = query.partition("-")
    place = folder / f"{schema}-{rows}"
    if not place.is_dir():
        made = folder / f"{schema}.csv"
        write_rows(made, (smart_plugs if schema == "debs2014" else taxi_trips)(rows, 1), lambda _rows: None)
        place.mkdir()
        with made.open("rb") as lines:
            for part in range(parts):
                with (place / f"part-{part:03}.csv").open("wb") as file:
                    file.writelines(islice(lines, -(-rows // parts)))
        made.unlink()
    return place


def command(by: str, query: str, source: Path, output: Path) -> tuple[list[str | Path], Mapping[str, str]]:
    """What answers a query, and its environment variables."""
    if by in PEERS:
        python = environment("queries", *PACKAGES) / "bin" / "python"
        return [python, HERE / "queries" / f"in_{by}.py", query, source, output], {"POLARS_MAX_THREADS": "2"}
    params = [part for param in PARAMS.get(query, ()) for part in ("--param", param)]
    asked = [*COMMAND, query, "--input", source, "--output", output, "--master", "local[2]", *params]
    return [*asked, *by.split()[1:]], {}


def prepared(folder: Path) -> None:
    """A first pipeline, long enough to keep Spark's classes for the others."""
    query = "debs2015-q1"
    asked, variables = command("spark", query, generated(query, 100_000, 1, folder), folder / "first")
    measured(asked, variables)


def answers(query: str, output: Path) -> dict[str, pa.Table]:
    """The tables of an answer in the peers' layout."""
    if query == "debs2014-q1":
        found = {}
        for name, order in ORDER.items():
            table = pq.read_table(output / name if (output / name).is_dir() else output / f"{name}.parquet")
            found[name] = table.sort_by([(column, "ascending") for column in order])
        return found
    if (output / "snapshots.parquet").is_file():
        table = pq.read_table(output / "snapshots.parquet").sort_by([("ts", "ascending"), ("place", "ascending")])
        return {"snapshots": table}
    wide = pq.read_table(output / "snapshots")
    seconds = pc.cast(pc.strptime(wide["ts"], "%Y-%m-%d %H:%M:%S", "s"), pa.int64())
    places = []
    for place in range(1, LISTED + 1):
        columns = {
            name.removesuffix(f"_{place}"): wide[name] for name in wide.column_names if name.endswith(f"_{place}")
        }
        columns = {THEIRS.get(name, name): _cell(values) for name, values in columns.items()}
        places.append(pa.table({"ts": seconds, "place": pa.repeat(pa.scalar(place), len(wide)), **columns}))
    long = pa.concat_tables(places)
    there = long.filter(pc.is_valid(long.column(2)))
    return {"snapshots": there.sort_by([("ts", "ascending"), ("place", "ascending")])}


def _cell(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_string(values.type):
        return values
    x, y = (pc.list_element(pc.split_pattern(values, "."), at) for at in (0, 1))
    return pc.add(pc.multiply(pc.cast(x, pa.int64()), 1000), pc.cast(y, pa.int64()))


def difference(one: Mapping[str, pa.Table], other: Mapping[str, pa.Table]) -> str:
    """Where two answers differ; empty: nowhere."""
    for name, table in one.items():
        if len(table) != len(other[name]):
            return f"{name} has {len(table):,} rows beside {len(other[name]):,}"
        for column in table.column_names:
            mine, theirs = table[column], other[name][column]
            if pa.types.is_floating(mine.type):
                allowed = PRINTED if name == "snapshots" else pc.multiply(pc.abs(theirs), SAME)
                equal = pc.less_equal(pc.abs(pc.subtract(mine, theirs)), allowed)
            else:
                equal = pc.equal(pc.cast(mine, pa.int64()), pc.cast(theirs, pa.int64()))
            # What is missing on one side is no value at all, and differs.
            wrong = len(mine) - (pc.sum(equal).as_py() or 0)
            if wrong:
                return f"{name}.{column} differs in {wrong:,} rows"
    return ""


@contextmanager
def place(asked: Path | None) -> Iterator[Path]:
    """The folder that was asked for, or a temporary one."""
    if asked is not None:
        asked.mkdir(parents=True, exist_ok=True)
        yield asked
    else:
        with tempfile.TemporaryDirectory(prefix="millrace-bench-", dir=os.environ.get("TMPDIR")) as name:
            yield Path(name)


def measure(options: argparse.Namespace, folder: Path) -> int:
    """Everybody in turn, query by query; the status says whether all answers were the same."""
    different = 0
    if not set(options.by).isdisjoint(SPARK):
        prepared(folder)
    for query in options.only:
        source = generated(query, options.rows, options.parts, folder)
        first: dict[str, pa.Table] | None = None
        took: dict[str, tuple[float, float]] = {}
        for by in options.by:
            output = Path(tempfile.mkdtemp(dir=folder)) / "answer"
            asked, variables = command(by, query, source, output)
            began = time.monotonic()
            used = measured(asked, variables)
            seconds = time.monotonic() - began
            found = answers(query, output)
            first = first or found
            verdict = difference(found, first)
            different += bool(verdict)
            took[by] = seconds, used.cpu_s
            print(
                f"{query:12} {by:14} {options.rows / seconds:>9,.0f} rows/s {seconds:7.1f} s {used.cpu_s:7.1f} CPU s "
                f"{used.pss_mb:6,.0f} MB  load {os.getloadavg()[0]:.1f}  {verdict or 'same answer'}",
                flush=True,
            )
        tell_ratios(query, took)
    return 1 if different else 0


def tell_ratios(query: str, took: Mapping[str, tuple[float, float]]) -> None:
    """Print how many times the seconds and the CPU seconds of others Spark took."""
    for by in (each for each in SPARK if each in took):
        rivals = {"pandas": ("pandas",), "the better of DuckDB and Polars": ("duckdb", "polars")}
        for name, rival in rivals.items():
            theirs = [took[each] for each in rival if each in took]
            if theirs:
                seconds, cpu_s = (took[by][at] / min(one[at] for one in theirs) for at in range(2))
                print(f"{query:12} {by:14} {seconds:.2f} times the seconds and {cpu_s:.2f} times the CPU s of {name}")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, default=10_000_000)
    arguments.add_argument("--parts", type=int, default=10)
    arguments.add_argument("--only", nargs="+", default=QUERIES, choices=QUERIES)
    arguments.add_argument("--by", nargs="+", default=[*PEERS, "spark"], choices=[*PEERS, *SPARK])
    arguments.add_argument("--folder", type=Path, help="where the rows lie; kept (default: a temporary one)")
    options = arguments.parse_args()
    with place(options.folder) as folder:
        return measure(options, folder)


if __name__ == "__main__":
    sys.exit(main())
