"""`prepare`: raw files validated, put in order of time, and profiled.

Unlike a query, it drops no row for being late: rows are sorted by time, and those of one time keep their order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from msgspec import Meta
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from inventory.documents import dump_yaml
from inventory.errors import InputError
from workloads.pipelines.expected_traffic import expected_traffic
from workloads.pipelines.lines import FAULT, LINE
from workloads.pipelines.output import write_document
from workloads.pipelines.progress import report
from workloads.pipelines.reading import Reading
from workloads.pipelines.row_filter import OUTLIER, jump_in, late_rows, numbered, where_is
from workloads.pipelines.source import PLACE, TURN, part_at, rows_of, schema_of
from workloads.pipelines.taxi_tables import cell
from workloads.recordings.grid import CELLS_500_M
from workloads.recordings.prepare import no_valid_row
from workloads.recordings.schema import DEBS2014, DEBS2015, SCHEMAS, SEQ, Schema
from workloads.taxi.layout import ROUTE
from workloads.topology import Topology, load_topology

RECORDING, QUARANTINE, RATES = "recording", "quarantine", "rates"
"""Tables."""

PROFILE, TRAFFIC = "profile.json", "traffic.yml"

MOST_NAMED = 10
"""Keys that the profile names, the most frequent ones."""


@dataclass(frozen=True)
class RepairParams:
    """Parameters.

    Attributes:
        schema: of the input; `detect`: by the number of its columns.
        topology: a topology file; what would flow between its executors is then written as a traffic file.
        speedup: how many times as fast as recorded, for that file.
    """

    schema: Literal["detect", "debs2014", "debs2015"] = "detect"
    topology: str = ""
    speedup: Annotated[float, Meta(gt=0)] = 1.0


class Repair:
    """The pipeline."""

    grid = None
    Params: ClassVar[type[Any]] = RepairParams
    order: ClassVar[Mapping[str, tuple[str, ...]]] = {RECORDING: (SEQ,), QUARANTINE: (SEQ,), RATES: ("time",)}

    def __init__(self, params: RepairParams) -> None:
        self._params = params
        self._topology: Topology | None = load_topology(params.topology) if params.topology else None

    def schema_of(self, source: Path) -> Schema:
        """Return the schema of the input."""
        return schema_of(source) if self._params.schema == "detect" else SCHEMAS[self._params.schema]

    def tables(self, reading: Reading, schema: Schema, folder: Path) -> Mapping[str, DataFrame]:
        """Return the tables; the profile and the traffic file are written to `folder`.

        Raises:
            InputError: the input is refused.
        """
        before, time = reading.before, schema.time
        rows = rows_of(reading.raw(schema), schema)
        slim = rows.select(PLACE, TURN, FAULT, LINE, F.lit(False).alias(OUTLIER), *schema.columns)
        found, places = numbered(reading.stored(slim), before)
        good = found.where(f"{FAULT} is null").select(SEQ, *schema.columns)
        times = good.groupBy(time).agg(F.min(SEQ).alias("first"), F.max(SEQ).alias("last"), F.count(SEQ).alias("rows"))
        times = times.persist()
        jump = jump_in(times, time)
        if jump is not None:
            where = where_is(jump["first"], places, reading.parts)
            raise InputError(f"{where}: {time} is {jump['days']} days later than that of any row before it")
        profile = self._profile(good, times, schema)
        if profile is None:
            raise no_valid_row(reading.source, reading.parts.values(), schema, before.quarantined)
        report("profile")
        write_document(folder / PROFILE, profile)
        if self._topology is not None:
            rate = profile["rows_per_s"] * self._params.speedup
            traffic = expected_traffic(self._topology, good.select(*_keys(schema)), rate)
            (folder / TRAFFIC).write_text(dump_yaml(traffic), encoding="utf-8")
        # Ids that rise from one partition of sorted rows to the next.
        in_order = good.orderBy(time, SEQ).select(F.monotonically_increasing_id().alias(SEQ), *schema.columns)
        firsts: dict[int, int] = {}
        for place, first in places:
            firsts.setdefault(part_at(place), first)
        kinds = pa.schema([("rank", pa.int64()), ("first", pa.int64()), ("file", pa.string())])
        named = [[*firsts], [*firsts.values()], [reading.parts[rank].name for rank in firsts]]
        parts = slim.sparkSession.createDataFrame(pa.table(named, schema=kinds))
        bad = found.where(f"{FAULT} is not null").join(parts.hint("broadcast"), F.col(SEQ) >= F.col("first"))
        bad = bad.groupBy(SEQ, FAULT, LINE).agg(F.max_by("file", "rank").alias("file"), F.max("first").alias("first"))
        line = (F.col(SEQ) - F.col("first") + 1).alias("line")
        text = F.make_valid_utf8(LINE).alias("text")
        quarantine = bad.select(
            SEQ, "file", line, F.lit("malformed").alias("class"), F.col(FAULT).alias("reason"), text
        )
        seconds = times.select(F.col(time).alias("time"), "rows")
        return {RECORDING: in_order, QUARANTINE: quarantine, RATES: seconds}

    def _profile(self, good: DataFrame, times: DataFrame, schema: Schema) -> dict[str, Any] | None:
        """Return rows, span, rates and skew; None without rows."""
        time, late = schema.time, late_rows(good, times, schema.time)
        quantiles = F.percentile("rows", F.array(F.lit(0.5), F.lit(0.99)))
        span = times.agg(
            F.sum("rows").alias("rows"),
            F.min(time).alias("first"),
            F.max(time).alias("last"),
            F.count(time).alias("seconds"),
            F.max("rows").alias("most"),
            quantiles.alias("quantiles"),
        ).head()
        if span is None or not span["rows"]:
            return None
        seconds = span["last"] - span["first"] + 1
        return {
            "schema": schema.name,
            "rows": span["rows"],
            "put_in_order": late,
            "first": span["first"],
            "last": span["last"],
            "span_s": seconds,
            "seconds_with_rows": span["seconds"],
            "rows_per_s": span["rows"] / seconds,
            "rows_in_a_second_with_rows": {
                "median": span["quantiles"][0],
                "p99": span["quantiles"][1],
                "most": span["most"],
            },
            "keys": {name: _skew(good, value, span["rows"]) for name, value in _named_keys(schema).items()},
        }


def _skew(rows: DataFrame, key: Column, total: int) -> dict[str, Any]:
    counts = rows.groupBy(key.alias("key")).agg(F.count("*").alias("rows"))
    most = counts.orderBy(F.desc("rows"), "key").limit(MOST_NAMED)
    best = most.agg(F.collect_list(F.struct("key", "rows")).alias("best"))
    found = counts.agg(F.count("*").alias("distinct")).crossJoin(best).head()
    assert found is not None  # noqa: S101 - an aggregate without keys has one row
    named = [{"key": one["key"], "share": one["rows"] / total} for one in found["best"]]
    return {"distinct": found["distinct"], "most_frequent": named}


def _keys(schema: Schema) -> list[Column]:
    """Return fields that streams of this schema are grouped by."""
    if schema is DEBS2014:
        return [F.col(name) for name in ("house_id", "household_id", "plug_id")]
    start, end = cell(CELLS_500_M, "pickup"), cell(CELLS_500_M, "dropoff")
    route = (start * ROUTE + end).alias("route")
    return [F.col("medallion"), start.alias("start"), end.alias("end"), route]


def _named_keys(schema: Schema) -> Mapping[str, Column]:
    if schema is DEBS2015:
        pickup, dropoff = cell(CELLS_500_M, "pickup"), cell(CELLS_500_M, "dropoff")
        route = F.concat_ws(" ", pickup.cast("string"), dropoff.cast("string"))
        return {"medallion": F.col("medallion"), "start": pickup, "end": dropoff, "route": route}
    plug = F.concat_ws(".", *(F.col(name).cast("string") for name in ("house_id", "household_id", "plug_id")))
    return {"house": F.col("house_id"), "plug": plug}
