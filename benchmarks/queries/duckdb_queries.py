"""The three queries in DuckDB, on two threads."""
# ruff: noqa: S608 - SQL is built from constants of this benchmark

from pathlib import Path

import duckdb
from query_definitions import (
    BASE,
    BLOCK,
    DAY_S,
    EMPTY_S,
    LISTED,
    PERIOD_S,
    PLUG,
    PROFIT_S,
    READING,
    ROUTES_S,
    SLICES,
    TICK_S,
    TRIP,
    grid,
    run_query,
)

COLUMN_TYPES = {"timestamp": "BIGINT", "value": "DOUBLE", "property": "TINYINT"}
COLUMN_TYPES |= dict.fromkeys(("pickup", "dropoff"), "TIMESTAMP")
COLUMN_TYPES |= dict.fromkeys((*PLUG, "fare", "tip"), "DOUBLE") | dict.fromkeys(PLUG, "BIGINT")
COLUMN_TYPES |= {f"{end}_{axis}": "DOUBLE" for end in ("pickup", "dropoff") for axis in ("lon", "lat")}


def connect() -> duckdb.DuckDBPyConnection:
    """Open a database in memory."""
    return duckdb.connect(config={"threads": 2, "memory_limit": "8GB"})


def csv_source(parts: list[str], names: tuple[str, ...]) -> str:
    """Return the SQL that reads the files."""
    columns = ", ".join(f"'{name}': '{COLUMN_TYPES.get(name, 'VARCHAR')}'" for name in names)
    return f"read_csv({parts}, header = false, columns = {{{columns}}})"


def create_trips(data: duckdb.DuckDBPyConnection, parts: list[str], query: str) -> None:
    """Create table `trips`: seq, medallion, t, start, finish, amount, since."""
    side, east, south, west, north = grid(query)
    inside = " AND ".join(
        f"{end}_lon BETWEEN {west} AND {west + side * east - 1} AND "
        f"{end}_lat BETWEEN {north - side * south + 1} AND {north}"
        for end in ("pickup", "dropoff")
    )
    cells = ", ".join(
        f"(({end}_lon - {west}) // {east} + 1) * 1000 + ({north} - {end}_lat) // {south} + 1 AS {name}"
        for end, name in (("pickup", "start"), ("dropoff", "finish"))
    )
    nano = ", ".join(f"round({name} * 1e9)::BIGINT AS {name}" for name in TRIP if name.endswith(("lon", "lat")))
    data.execute(f"""
        CREATE TEMP TABLE raw AS SELECT medallion, epoch(dropoff)::BIGINT AS t,
            round(fare * 1e9)::BIGINT + round(tip * 1e9)::BIGINT AS amount, {nano} FROM {csv_source(parts, TRIP)};
        CREATE TEMP TABLE trips AS
        WITH on_grid AS (SELECT rowid AS seq, * FROM raw WHERE {inside}),
        ordered AS (SELECT *, max(t) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS newest FROM on_grid)
        SELECT seq, medallion, t, amount, {cells}, (t + {PERIOD_S - 1}) // {PERIOD_S} AS since
        FROM ordered WHERE t = newest;
        DROP TABLE raw""")


def create_block_rows(data: duckdb.DuckDBPyConnection, columns: str) -> None:
    """Create table `block_rows`: each row of `windows` once per block that overlaps its ticks.

    A row's ticks are `since` to before `until`. Columns `a` and `z` are the first tick and the tick after the last,
    counted from the block's begin.
    """
    data.execute(f"""
        CREATE TEMP TABLE block_rows AS
        WITH ended AS (SELECT * REPLACE (least(until, (SELECT max(since) + 1 FROM trips)) AS until) FROM windows),
        by_block AS (SELECT *, unnest(range(since // {BLOCK}, (until - 1) // {BLOCK} + 1)) AS block
            FROM ended WHERE since < until)
        SELECT block, {columns}, greatest(since - block * {BLOCK}, 0)::TINYINT AS a,
            least(until - block * {BLOCK}, {BLOCK})::TINYINT AS z FROM by_block""")


def frequent_routes(parts: list[str], output: Path) -> None:
    """Write the ten most frequent routes per tick (`debs2015-q1`)."""
    data = connect()
    create_trips(data, parts, "debs2015-q1")
    data.execute(f"""CREATE TEMP VIEW windows AS SELECT seq, start * 1000000 + finish AS route, since,
        (t + {ROUTES_S + PERIOD_S - 1}) // {PERIOD_S} AS until FROM trips""")
    create_block_rows(data, "seq, route")
    data.execute(f"""
        COPY (
            WITH bounds AS (SELECT block, route, count(*) FILTER (a = 0 AND z = {BLOCK}) AS min_trips,
                    count(*) AS max_trips
                FROM block_rows GROUP BY ALL),
            thresholds AS (SELECT block, coalesce(max(min_trips, {LISTED})[{LISTED}], 0) AS threshold
                FROM bounds GROUP BY block),
            candidates AS (SELECT block, route FROM bounds JOIN thresholds USING (block) WHERE max_trips >= threshold),
            at_ticks AS (SELECT block, route, seq, unnest(range(a, z)) AS step
                FROM block_rows JOIN candidates USING (block, route)),
            counted AS (SELECT block * {BLOCK} + step AS tick, route, count(*) AS trips, max(seq) AS newest
                FROM at_ticks GROUP BY ALL)
            SELECT tick * {PERIOD_S} AS ts, row_number() OVER ranking AS place, route // 1000000 AS start,
                route % 1000000 AS finish, trips FROM counted
            WINDOW ranking AS (PARTITION BY tick ORDER BY trips DESC, newest DESC) QUALIFY place <= {LISTED}
        ) TO '{output}/snapshots.parquet'""")


def profitable_areas(parts: list[str], output: Path) -> None:
    """Write the ten most profitable cells per tick (`debs2015-q2`)."""
    data = connect()
    create_trips(data, parts, "debs2015-q2")
    late = PERIOD_S - 1
    data.execute(f"""
        CREATE TEMP VIEW windows AS
        WITH following AS (SELECT *, lead(t) OVER (PARTITION BY medallion ORDER BY seq) AS next FROM trips)
        SELECT seq, start AS cell, amount, since, (t + {PROFIT_S + late}) // {PERIOD_S} AS until FROM trips
        UNION ALL
        SELECT seq, finish, NULL, since, (least(t + {EMPTY_S}, next) + {late}) // {PERIOD_S} FROM following""")
    create_block_rows(data, "seq, cell, amount")
    data.execute(f"""
        COPY (
            WITH bounds AS (SELECT block, cell, min(amount) AS low, max(amount) AS high,
                    count(amount) FILTER (a = 0 AND z = {BLOCK}) AS min_profits,
                    count(*) FILTER (amount IS NULL AND a = 0 AND z = {BLOCK}) AS min_empty,
                    count(*) FILTER (amount IS NULL) AS max_empty
                FROM block_rows GROUP BY ALL HAVING low IS NOT NULL AND max_empty > 0),
            value_bounds AS (SELECT block, cell,
                    high / (CASE WHEN high >= 0 THEN greatest(min_empty, 1) ELSE max_empty END) AS at_most,
                    CASE WHEN min_profits > 0 AND min_empty > 0
                        THEN low / (CASE WHEN low >= 0 THEN max_empty ELSE min_empty END) END AS at_least FROM bounds),
            thresholds AS (SELECT block, coalesce(max(at_least, {LISTED})[{LISTED}], '-infinity'::DOUBLE) AS threshold
                FROM value_bounds GROUP BY block),
            candidates AS (SELECT block, cell FROM value_bounds JOIN thresholds USING (block)
                WHERE at_most + abs(at_most) * 1e-12 >= threshold),
            at_ticks AS (SELECT block, cell, seq, amount, unnest(range(a, z)) AS step
                FROM block_rows JOIN candidates USING (block, cell)),
            counted AS (SELECT block * {BLOCK} + step AS tick, cell, median(amount) / 1e9 AS profit,
                    count(*) - count(amount) AS empty, max(seq) AS newest
                FROM at_ticks GROUP BY ALL HAVING profit IS NOT NULL AND empty > 0)
            SELECT tick * {PERIOD_S} AS ts, row_number() OVER ranking AS place, cell, empty, profit,
                profit / empty AS value FROM counted
            WINDOW ranking AS (PARTITION BY tick ORDER BY profit / empty DESC, newest DESC, cell)
            QUALIFY place <= {LISTED}
        ) TO '{output}/snapshots.parquet'""")


def load_predictions(parts: list[str], output: Path) -> None:
    """Write the predicted loads of houses and plugs (`debs2014-q1`)."""
    data = connect()
    plug = ", ".join(PLUG)
    data.execute(f"""
        CREATE TEMP TABLE raw AS SELECT (timestamp - {BASE}) AS t, value, property, {plug}
            FROM {csv_source(parts, READING)};
        CREATE TEMP TABLE sums AS
        WITH ordered AS (SELECT *, max(t) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS newest FROM raw)
        SELECT {plug}, t // {TICK_S} AS step, sum(value) AS total, count(*) AS count
        FROM ordered WHERE t = newest AND property = 1 GROUP BY ALL;
        CREATE TEMP TABLE plugs AS
        WITH rows AS (SELECT *, unnest({list(SLICES)}) AS slice_s FROM sums),
        sliced AS (SELECT *, step // (slice_s // {TICK_S}) AS slice FROM rows),
        running AS (SELECT {plug}, slice_s, slice, step, sum(total) OVER so_far / sum(count) OVER so_far AS load,
                lead(step) OVER (PARTITION BY {plug}, slice_s, slice ORDER BY step) AS following FROM sliced
            WINDOW so_far AS (PARTITION BY {plug}, slice_s, slice ORDER BY step ROWS UNBOUNDED PRECEDING)),
        ended AS (SELECT *, least(following, (slice + 1) * (slice_s // {TICK_S}),
            (SELECT max(t) // {TICK_S} + 1 FROM raw)) AS until FROM running)
        SELECT {plug}, slice_s, slice, unnest(range(step, until)) AS step, load FROM ended;
        CREATE TEMP VIEW houses AS SELECT house_id, slice_s, slice, step, sum(load) AS load FROM plugs
        GROUP BY house_id, slice_s, slice, step""")
    for table, name in (("house", PLUG[:1]), ("plug", PLUG)):
        keys = ", ".join(name)
        join_condition = " AND ".join(f"past.{key} = requested.{key}" for key in (*name, "slice_s"))
        data.execute(f"""
            COPY (
                WITH past AS (SELECT {keys}, slice_s, slice, load FROM {table}s
                    WHERE (step + 1) % (slice_s // {TICK_S}) = 0),
                requested AS (SELECT DISTINCT {keys}, slice_s, slice FROM {table}s),
                medians AS (SELECT {", ".join(f"requested.{key}" for key in (*name, "slice_s", "slice"))},
                        median(past.load) AS median_load, count(*) AS days
                    FROM requested JOIN past ON {join_condition} AND past.slice < requested.slice + 2
                        AND (requested.slice + 2 - past.slice) % ({DAY_S} // requested.slice_s) = 0
                    GROUP BY ALL)
                SELECT {BASE} + (step + 1) * {TICK_S} AS tick, slice_s, {BASE} + (slice + 2) * slice_s AS ts, {keys},
                    coalesce((load + median_load) / 2, load) AS predicted_load, coalesce(days, 0) AS n_history
                FROM {table}s LEFT JOIN medians USING ({keys}, slice_s, slice) ORDER BY tick, slice_s, {keys}
            ) TO '{output}/{table}.parquet'""")


if __name__ == "__main__":
    run_query({"debs2014-q1": load_predictions, "debs2015-q1": frequent_routes, "debs2015-q2": profitable_areas})
