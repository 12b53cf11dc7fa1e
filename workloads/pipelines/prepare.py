"""Pipeline `prepare`: validate raw files, sort them by time, and profile them.

Unlike a query, it keeps late rows: rows are sorted by time, and rows of one time keep their order. For a topology that
reads the recording it also computes the expected traffic between executors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from msgspec import Meta
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from inventory.documents import dump_yaml
from inventory.errors import InputError
from workloads.key_groups import KeyRouter, first_owners
from workloads.pipelines.lines import FAULT, LINE, PLACE, TURN, input_schema, part_at, raw_columns
from workloads.pipelines.pipeline import write_json
from workloads.pipelines.reading import OUTLIER, OpenInput, jump_in, late_rows, number_rows, where_is
from workloads.pipelines.spark_session import report
from workloads.pipelines.taxi_tables import cell
from workloads.recordings.prepare import no_valid_row
from workloads.recordings.schema import CELLS_500_M, DEBS2014, DEBS2015, SCHEMAS, SEQ, Schema
from workloads.taxi.layout import ROUTE
from workloads.topology import Executor, Input, Topology, load_topology
from workloads.traffic import Edge, Traffic

RECORDING, QUARANTINE, RATES = "recording", "quarantine", "rates"
"""Tables."""

PROFILE, TRAFFIC = "profile.json", "traffic.yml"

MOST_NAMED = 10
"""Number of most frequent keys listed in the profile."""


@dataclass(frozen=True)
class RepairParams:
    """Parameters.

    Attributes:
        schema: of the input; `detect`: by the number of its columns.
        topology: a topology file; the expected traffic between its executors is written as a traffic file.
        speedup: replay speed in that file, relative to the recording.
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
        return input_schema(source) if self._params.schema == "detect" else SCHEMAS[self._params.schema]

    def tables(self, reading: OpenInput, schema: Schema, folder: Path) -> Mapping[str, DataFrame]:
        """Return the tables; the profile and the traffic file are written to `folder`.

        Raises:
            InputError: the input is refused.
        """
        before, time = reading.before, schema.time
        rows = raw_columns(reading.raw(schema), schema)
        slim = rows.select(PLACE, TURN, FAULT, LINE, F.lit(False).alias(OUTLIER), *schema.columns)
        numbered, places = number_rows(reading.stored(slim), before)
        good = numbered.where(f"{FAULT} is null").select(SEQ, *schema.columns)
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
        write_json(folder / PROFILE, profile)
        if self._topology is not None:
            rate = profile["rows_per_s"] * self._params.speedup
            traffic = expected_traffic(self._topology, good.select(*_keys(schema)), rate)
            (folder / TRAFFIC).write_text(dump_yaml(traffic), encoding="utf-8")
        # These ids rise from one partition of sorted rows to the next.
        in_order = good.orderBy(time, SEQ).select(F.monotonically_increasing_id().alias(SEQ), *schema.columns)
        firsts: dict[int, int] = {}
        for place, first in places:
            firsts.setdefault(part_at(place), first)
        kinds = pa.schema([("rank", pa.int64()), ("first", pa.int64()), ("file", pa.string())])
        named = [[*firsts], [*firsts.values()], [reading.parts[rank].name for rank in firsts]]
        parts = slim.sparkSession.createDataFrame(pa.table(named, schema=kinds))
        bad = numbered.where(f"{FAULT} is not null").join(parts.hint("broadcast"), F.col(SEQ) >= F.col("first"))
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
    head = counts.agg(F.count("*").alias("distinct")).crossJoin(best).head()
    assert head is not None  # noqa: S101 - an aggregate without keys has one row
    named = [{"key": one["key"], "share": one["rows"] / total} for one in head["best"]]
    return {"distinct": head["distinct"], "most_frequent": named}


def _keys(schema: Schema) -> list[Column]:
    """Return the fields by which streams of this schema are grouped."""
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


Shares = Mapping[int, float]
"""Index of an executor -> its share of a stream."""


def expected_traffic(topology: Topology, keys: DataFrame, rows_per_s: float) -> Traffic:
    """Return the rates of all edges when every bolt emits as many tuples as it takes in.

    Args:
        topology: its spouts share the rows evenly.
        keys: columns of the recording by which streams may be grouped; a fields grouping by others counts as even.
        rows_per_s: of the recording.

    Raises:
        InputError: the topology has a cycle.
    """
    emitted: dict[Executor, float] = {}
    taken: dict[Executor, float] = dict.fromkeys(topology.executors, 0.0)
    edges: dict[tuple[str, str], float] = {}
    for name in topology.order:
        component = topology.component[name]
        for entry in component.inputs:
            shares = _shares(entry, component.parallelism, keys)
            for source in topology.executors_of(entry.source):
                for index, share in shares.items():
                    rate = emitted[source] * share
                    destination = Executor(name, index)
                    taken[destination] += rate
                    pair = source.name, destination.name
                    edges[pair] = edges.get(pair, 0.0) + rate
        for executor in topology.executors_of(name):
            spout = component.kind == "spout"
            emitted[executor] = rows_per_s / component.parallelism if spout else taken[executor]
    return Traffic(tuple(Edge(*pair, tuples_per_s=rate) for pair, rate in edges.items() if rate))


def _shares(entry: Input, parallelism: int, keys: DataFrame) -> Shares:
    if entry.grouping == "all":
        return dict.fromkeys(range(parallelism), 1.0)
    if entry.grouping == "global":
        return {0: 1.0}
    if entry.grouping == "fields" and set(entry.fields) <= set(keys.columns):
        return _dealt(keys, entry.fields, parallelism)
    return dict.fromkeys(range(parallelism), 1 / parallelism)


def _dealt(keys: DataFrame, fields: Sequence[str], parallelism: int) -> Shares:
    """Return the shares of the executors, from the keys and the testbed's fields grouping."""
    shares = dict.fromkeys(range(parallelism), 0.0)
    route = KeyRouter(first_owners(parallelism))
    counted = keys.groupBy(*fields).count()
    total = 0
    for *key, count in counted.toLocalIterator():
        shares[route(tuple(key))] += count
        total += count
    return {index: share / total for index, share in shares.items()}
