"""Measure rows per second and memory of the Spark pipelines, beside DuckDB, Polars and pandas on the same queries.

    python benchmarks/pipelines.py [--rows 10000000] [--queries QUERY ...] [--systems NAME ...] [--parts 10]
        [--folder DIR]

The input is generated rows in several CSV files. Each system is a process that reads all of them and writes its answer
as Parquet, on two threads (pandas: one); its start-up time counts. Spark is `millrace pipeline --master local[2]`, as a
batch or, with `--systems "spark --stream"`, file by file. CPU seconds and memory cover all processes of a system;
memory is the proportional set size. Every answer is compared with that of the first system. At the end of each query,
Spark is compared with pandas, and with the better of DuckDB and Polars, by wall time and by CPU time; on a busy machine
only the latter is meaningful. The first call creates an environment for the peers and Spark's class archive.
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
from query_definitions import DAY_S, LISTED, SLICES  # noqa: E402

from workloads.generate.smart_plugs import smart_plugs  # noqa: E402
from workloads.generate.taxi_trips import taxi_trips  # noqa: E402
from workloads.generate.writing import write_rows  # noqa: E402

PACKAGES = ("duckdb==2.0.0", "polars==2.1.0", "pandas==3.1.1", "pyarrow==26.0.1")
MILLRACE_PIPELINE = (sys.executable, "-c", "from millrace.__main__ import main; main()", "pipeline")
PARAMS = {"debs2014-q1": (f"slices={','.join(map(str, SLICES))}", f"day_s={DAY_S}")}
QUERIES = ("debs2014-q1", "debs2015-q1", "debs2015-q2")
SPARK = ("spark", "spark --stream")
PEERS = ("duckdb", "polars", "pandas")

SORT_COLUMNS = {"house": ["tick", "slice_s", "house_id"]}
SORT_COLUMNS["plug"] = [*SORT_COLUMNS["house"], "household_id", "plug_id"]
"""Of the tables of DEBS 2014."""

LOAD_TOLERANCE = 1e-9
"""Relative, since sums of decimals depend on their order."""

DOLLAR_TOLERANCE = 1e-6
"""Absolute, since the pipelines round to it."""

PEER_COLUMNS = {"end": "finish", "count": "trips"}
"""Column of the pipelines -> column of the peers, where they differ."""


def generate_input(query: str, rows: int, parts: int, folder: Path) -> Path:
    """Return the folder of a query's CSV files; generate them if they are missing."""
    schema, _, _ = query.partition("-")
    source = folder / f"{schema}-{rows}"
    if not source.is_dir():
        whole = folder / f"{schema}.csv"
        write_rows(whole, (smart_plugs if schema == "debs2014" else taxi_trips)(rows, 1), lambda _rows: None)
        source.mkdir()
        with whole.open("rb") as lines:
            for part in range(parts):
                with (source / f"part-{part:03}.csv").open("wb") as file:
                    file.writelines(islice(lines, -(-rows // parts)))
        whole.unlink()
    return source


def command_of(system: str, query: str, source: Path, output: Path) -> tuple[list[str | Path], Mapping[str, str]]:
    """Return the command with which a system answers a query, and its environment variables."""
    if system in PEERS:
        python = environment("queries", *PACKAGES) / "bin" / "python"
        return [python, HERE / "queries" / f"{system}_queries.py", query, source, output], {"POLARS_MAX_THREADS": "2"}
    params = [part for param in PARAMS.get(query, ()) for part in ("--param", param)]
    spark: list[str | Path] = [
        *MILLRACE_PIPELINE,
        query,
        "--input",
        source,
        "--output",
        output,
        "--master",
        "local[2]",
        *params,
    ]
    return [*spark, *system.split()[1:]], {}


def write_class_archive(folder: Path) -> None:
    """Run a first pipeline that is long enough for Spark's class archive to be written."""
    query = "debs2015-q1"
    command, variables = command_of("spark", query, generate_input(query, 100_000, 1, folder), folder / "first")
    measured(command, variables)


def read_answer(query: str, output: Path) -> dict[str, pa.Table]:
    """Return the tables of an answer in the peers' layout."""
    if query == "debs2014-q1":
        tables = {}
        for name, order in SORT_COLUMNS.items():
            table = pq.read_table(output / name if (output / name).is_dir() else output / f"{name}.parquet")
            tables[name] = table.sort_by([(column, "ascending") for column in order])
        return tables
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
        columns = {PEER_COLUMNS.get(name, name): _cell_number(values) for name, values in columns.items()}
        places.append(pa.table({"ts": seconds, "place": pa.repeat(pa.scalar(place), len(wide)), **columns}))
    long = pa.concat_tables(places)
    listed = long.filter(pc.is_valid(long.column(2)))
    return {"snapshots": listed.sort_by([("ts", "ascending"), ("place", "ascending")])}


def _cell_number(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return cells `x.y` as 1000 x + y; leave numbers unchanged."""
    if not pa.types.is_string(values.type):
        return values
    x, y = (pc.list_element(pc.split_pattern(values, "."), at) for at in (0, 1))
    return pc.add(pc.multiply(pc.cast(x, pa.int64()), 1000), pc.cast(y, pa.int64()))


def difference(one: Mapping[str, pa.Table], other: Mapping[str, pa.Table]) -> str:
    """Return where two answers differ first; empty if nowhere."""
    for name, table in one.items():
        if len(table) != len(other[name]):
            return f"{name} has {len(table):,} rows beside {len(other[name]):,}"
        for column in table.column_names:
            left, right = table[column], other[name][column]
            if pa.types.is_floating(left.type):
                tolerance = DOLLAR_TOLERANCE if name == "snapshots" else pc.multiply(pc.abs(right), LOAD_TOLERANCE)
                equal = pc.less_equal(pc.abs(pc.subtract(left, right)), tolerance)
            else:
                equal = pc.equal(pc.cast(left, pa.int64()), pc.cast(right, pa.int64()))
            # A comparison with null is null, and counts as a difference.
            wrong = len(left) - (pc.sum(equal).as_py() or 0)
            if wrong:
                return f"{name}.{column} differs in {wrong:,} rows"
    return ""


@contextmanager
def input_folder(requested: Path | None) -> Iterator[Path]:
    """Yield the requested folder, or a temporary one."""
    if requested is not None:
        requested.mkdir(parents=True, exist_ok=True)
        yield requested
    else:
        with tempfile.TemporaryDirectory(prefix="millrace-bench-", dir=os.environ.get("TMPDIR")) as name:
            yield Path(name)


def measure(options: argparse.Namespace, folder: Path) -> int:
    """Run every system on every query; return 1 if answers differ."""
    different = 0
    if not set(options.systems).isdisjoint(SPARK):
        write_class_archive(folder)
    for query in options.queries:
        source = generate_input(query, options.rows, options.parts, folder)
        first: dict[str, pa.Table] | None = None
        times: dict[str, tuple[float, float]] = {}
        for system in options.systems:
            output = Path(tempfile.mkdtemp(dir=folder)) / "answer"
            command, variables = command_of(system, query, source, output)
            begin = time.monotonic()
            used = measured(command, variables)
            seconds = time.monotonic() - begin
            answer = read_answer(query, output)
            first = first or answer
            verdict = difference(answer, first)
            different += bool(verdict)
            times[system] = seconds, used.cpu_s
            print(
                f"{query:12} {system:14} {options.rows / seconds:>9,.0f} rows/s {seconds:7.1f} s "
                f"{used.cpu_s:7.1f} CPU s {used.pss_mb:6,.0f} MB  "
                f"load {os.getloadavg()[0]:.1f}  {verdict or 'same answer'}",
                flush=True,
            )
        print_ratios(query, times)
    return 1 if different else 0


def print_ratios(query: str, times: Mapping[str, tuple[float, float]]) -> None:
    """Print the ratios of Spark's seconds and CPU seconds to those of peers."""
    for spark in (system for system in SPARK if system in times):
        peer_groups = {"pandas": ("pandas",), "the better of DuckDB and Polars": ("duckdb", "polars")}
        for name, group in peer_groups.items():
            measured_peers = [times[peer] for peer in group if peer in times]
            if measured_peers:
                seconds, cpu_s = (times[spark][at] / min(one[at] for one in measured_peers) for at in range(2))
                ratios = f"{seconds:.2f} times the seconds and {cpu_s:.2f} times the CPU s of {name}"
                print(f"{query:12} {spark:14} {ratios}")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, default=10_000_000)
    arguments.add_argument("--parts", type=int, default=10, help="number of CSV files")
    arguments.add_argument("--queries", nargs="+", default=QUERIES, choices=QUERIES)
    arguments.add_argument("--systems", nargs="+", default=[*PEERS, "spark"], choices=[*PEERS, *SPARK])
    arguments.add_argument("--folder", type=Path, help="folder of the CSV files, kept (default: a temporary folder)")
    options = arguments.parse_args()
    with input_folder(options.folder) as folder:
        return measure(options, folder)


if __name__ == "__main__":
    sys.exit(main())
