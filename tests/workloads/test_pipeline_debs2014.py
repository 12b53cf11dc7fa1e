"""Query 1 of DEBS 2014 by Spark: batch and stream give the rows of brute force, as workers do."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import debs2014_brute_force as brute_force
import pyarrow as pa
import pyarrow.parquet
import pytest

from workloads.recordings.parse import arrow_schema
from workloads.recordings.schema import DEBS2014
from workloads.smart_home.query import QueryParams
from workloads.workload import load_workload

pytestmark = [
    pytest.mark.spark,
    pytest.mark.pipelines,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore"),
]

B = 1377986400


@pytest.fixture(scope="module")
def spark() -> Any:
    from spark_pipelines import session

    started = session()
    started.conf.set("spark.sql.shuffle.partitions", "2")
    return started


@pytest.fixture
def plain_plans(spark: Any) -> Iterator[None]:
    """Turn off code generation, which takes longer than the execution for so few rows."""
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    yield
    spark.conf.set("spark.sql.codegen.wholeStage", "true")


def frame(spark: Any, query: Any, readings: Sequence[brute_force.Reading]) -> Any:
    """Return accepted rows as the reader of pipelines does, reduced by hundreds as if in stretches."""
    house, household, plug = ([reading.plug[at] for reading in readings] for at in range(3))
    columns = [
        [reading.seq for reading in readings],
        [reading.ts for reading in readings],
        [reading.value for reading in readings],
        [int(reading.is_load) for reading in readings],
        *(plug, household, house),
    ]
    rows = pa.table(columns, schema=arrow_schema(DEBS2014))
    reduced = [query.reduced(rows.slice(at, 100)) for at in range(0, len(rows), 100)]
    return spark.createDataFrame(pa.concat_tables(reduced))


def rows_of(table: Any) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.toArrow().columns), strict=True))


def batch_tables(spark: Any, query: QueryParams, readings: Sequence[brute_force.Reading]) -> dict[str, list[Any]]:
    """Return the tables of a batch run over accepted rows."""
    from workloads.pipelines.debs2014_loads import LoadsPipeline
    from workloads.pipelines.pipeline import Known, Piece

    loads = LoadsPipeline(query)
    piece = Piece(frame(spark, loads, readings), readings[0].ts, readings[-1].ts, over=True)
    return {name: rows_of(table) for name, table in loads.advanced(Known(), piece).tables.items()}


def expected(readings: Sequence[brute_force.Reading], query: QueryParams) -> dict[str, list[tuple[Any, ...]]]:
    return brute_force.answer(readings, query.lengths, query.day_s, query.fill)


def drawn(seed: int, count: int) -> list[brute_force.Reading]:
    """Draw readings with gaps, several in a second, resets of counters, and plug ids that repeat."""
    random = Random(seed)  # noqa: S311 - it must be repeatable
    now, readings = B - 70, []
    for seq in range(count):
        now += random.choice([0, 0, 0, 1, 2, 7, 30, 61]) if random.random() < 0.98 else 400
        name = random.randrange(2), random.randrange(2), random.randrange(2)
        is_load = random.random() < 0.6
        value = random.choice([0.0, 5.5, 100 * random.random()]) if is_load else round(seq / 100 % 3, 3)
        readings.append(brute_force.Reading(seq, now, value, is_load, name))
    return readings


@pytest.mark.parametrize(
    ("file", "query"),
    [
        ("house0-60s-first12h.csv.gz", QueryParams(slices=(300, 900), day_s=7200)),
        ("all-houses-first10000.csv.gz", QueryParams(fill="work")),
    ],
)
def test_a_real_extract_as_a_batch(spark: Any, shared_data: Path, file: str, query: QueryParams) -> None:
    readings, _ = brute_force.valid_readings(brute_force.lines_of(shared_data / "debs2014" / file))
    brute_force.check_same(batch_tables(spark, query, readings), expected(readings, query))


def test_readings_of_work_alone_give_no_rows(spark: Any) -> None:
    assert batch_tables(spark, QueryParams(), [brute_force.Reading(0, B + 5, 1.0, False, (0, 0, 0))]) == {
        "house": [],
        "plug": [],
    }


def test_batch_stream_and_agents_give_the_same_rows_and_counts_from_raw_parts(
    spark: Any, tmp_path: Path, plain_plans: None
) -> None:
    from spark_pipelines import Pipelines

    parts = tmp_path / "parts"
    parts.mkdir()
    lines = [raw(reading) for reading in drawn(5, 240)]
    # Bad rows of every class, not in the first lines of parts.
    lines[20:20] = [
        b"",
        b"1,2,3",
        b"7,%d,nan,1,0,0,0" % (B + 9),
        b"8,%d,-1,1,0,0,0" % (B + 9),
        b"9,%d,1,2,0,0,0" % (B + 9),
    ]
    lines[100:100] = [b"10,%d,5,1,0,0,0" % (B - 80)]
    for number, (begin, end) in enumerate([(0, 90), (90, 91), (91, len(lines))]):
        (parts / f"part-{number}.csv").write_bytes(b"\r\n".join(lines[begin:end]) + b"\r\n")
    readings, quarantined = brute_force.valid_readings(lines)
    query = QueryParams(slices=(60, 120), day_s=360, fill="work")
    tables = expected(readings, query)
    params = ("slices=60,120", "day_s=360", "fill=work")
    for stream in (False, True):
        output = Pipelines(spark, tmp_path / f"{stream}")("debs2014-q1", parts, *params, kind="parquet", stream=stream)
        brute_force.check_same({name: rows_in_folder(output / name) for name in tables}, tables)
        summary = json.loads((output / "summary.json").read_text())
        assert summary == {"rows_read": len(lines), "quarantined": quarantined}
    workload_params = {
        "input": str(parts),
        "slices": [60, 120],
        "day_s": 360,
        "fill": "work",
        "parallelism": {"source": 2},
    }
    workload = load_workload("smart-home", workload_params)
    inputs = workload.prepare(tmp_path / "prepared")
    assert inputs[0].quarantined == quarantined
    half = inputs[0].records // 2
    brute_force.check_same(workload.reference([inputs[0].records - half, half], inputs), tables)


def raw(reading: brute_force.Reading) -> bytes:
    house, household, plug = reading.plug
    return f"{reading.seq},{reading.ts},{reading.value},{int(reading.is_load)},{plug},{household},{house}".encode()


def rows_in_folder(folder: Path) -> list[tuple[Any, ...]]:
    columns = pyarrow.parquet.read_table(folder).columns
    return list(zip(*(column.to_pylist() for column in columns), strict=True))
