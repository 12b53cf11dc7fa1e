"""The three queries in DuckDB, on two threads."""
# ruff: noqa: S608 - the texts that are put together are our own

from pathlib import Path

import duckdb
from terms import (
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
    answer,
    grid,
)

KINDS = {"timestamp": "BIGINT", "value": "DOUBLE", "property": "TINYINT", "pickup": "TIMESTAMP", "dropoff": "TIMESTAMP"}
KINDS |= dict.fromkeys((*PLUG, "fare", "tip"), "DOUBLE") | dict.fromkeys(PLUG, "BIGINT")
KINDS |= {f"{end}_{axis}": "DOUBLE" for end in ("pickup", "dropoff") for axis in ("lon", "lat")}


def connected() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 2, "memory_limit": "8GB"})


def lines(parts: list[str], names: tuple[str, ...]) -> str:
    columns = ", ".join(f"'{name}': '{KINDS.get(name, 'VARCHAR')}'" for name in names)
    return f"read_csv({parts}, header = false, columns = {{{columns}}})"


def trips(data: duckdb.DuckDBPyConnection, parts: list[str], query: str) -> None:
    """Table `trips`: seq, medallion, t, start, finish, amount, since."""
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
            round(fare * 1e9)::BIGINT + round(tip * 1e9)::BIGINT AS amount, {nano} FROM {lines(parts, TRIP)};
        CREATE TEMP TABLE trips AS
        WITH found AS (SELECT rowid AS seq, * FROM raw WHERE {inside}),
        ordered AS (SELECT *, max(t) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS newest FROM found)
        SELECT seq, medallion, t, amount, {cells}, (t + {PERIOD_S - 1}) // {PERIOD_S} AS since
        FROM ordered WHERE t = newest;
        DROP TABLE raw""")


def in_blocks(data: duckdb.DuckDBPyConnection, columns: str) -> None:
    """Table `seen`: what is `placed` from tick `since` to before `until`, once for each block, ticks counted in it."""
    data.execute(f"""
        CREATE TEMP TABLE seen AS
        WITH ended AS (SELECT * REPLACE (least(until, (SELECT max(since) + 1 FROM trips)) AS until) FROM placed),
        dealt AS (SELECT *, unnest(range(since // {BLOCK}, (until - 1) // {BLOCK} + 1)) AS block
            FROM ended WHERE since < until)
        SELECT block, {columns}, greatest(since - block * {BLOCK}, 0)::TINYINT AS a,
            least(until - block * {BLOCK}, {BLOCK})::TINYINT AS z FROM dealt""")


def routes(parts: list[str], output: Path) -> None:
    data = connected()
    trips(data, parts, "debs2015-q1")
    data.execute(f"""CREATE TEMP VIEW placed AS SELECT seq, start * 1000000 + finish AS route, since,
        (t + {ROUTES_S + PERIOD_S - 1}) // {PERIOD_S} AS until FROM trips""")
    in_blocks(data, "seq, route")
    data.execute(f"""
        COPY (
            WITH bounds AS (SELECT block, route, count(*) FILTER (a = 0 AND z = {BLOCK}) AS least, count(*) AS most
                FROM seen GROUP BY ALL),
            needs AS (SELECT block, coalesce(max(least, {LISTED})[{LISTED}], 0) AS needed FROM bounds GROUP BY block),
            few AS (SELECT block, route FROM bounds JOIN needs USING (block) WHERE most >= needed),
            at_ticks AS (SELECT block, route, seq, unnest(range(a, z)) AS step FROM seen JOIN few USING (block, route)),
            counted AS (SELECT block * {BLOCK} + step AS tick, route, count(*) AS trips, max(seq) AS newest
                FROM at_ticks GROUP BY ALL)
            SELECT tick * {PERIOD_S} AS ts, row_number() OVER best AS place, route // 1000000 AS start,
                route % 1000000 AS finish, trips FROM counted
            WINDOW best AS (PARTITION BY tick ORDER BY trips DESC, newest DESC) QUALIFY place <= {LISTED}
        ) TO '{output}/snapshots.parquet'""")


def areas(parts: list[str], output: Path) -> None:
    data = connected()
    trips(data, parts, "debs2015-q2")
    late = PERIOD_S - 1
    data.execute(f"""
        CREATE TEMP VIEW placed AS
        WITH following AS (SELECT *, lead(t) OVER (PARTITION BY medallion ORDER BY seq) AS next FROM trips)
        SELECT seq, start AS cell, amount, since, (t + {PROFIT_S + late}) // {PERIOD_S} AS until FROM trips
        UNION ALL
        SELECT seq, finish, NULL, since, (least(t + {EMPTY_S}, next) + {late}) // {PERIOD_S} FROM following""")
    in_blocks(data, "seq, cell, amount")
    data.execute(f"""
        COPY (
            WITH bounds AS (SELECT block, cell, min(amount) AS low, max(amount) AS high,
                    count(amount) FILTER (a = 0 AND z = {BLOCK}) AS profits,
                    count(*) FILTER (amount IS NULL AND a = 0 AND z = {BLOCK}) AS sure,
                    count(*) FILTER (amount IS NULL) AS most
                FROM seen GROUP BY ALL HAVING low IS NOT NULL AND most > 0),
            worth AS (SELECT block, cell, high / (CASE WHEN high >= 0 THEN greatest(sure, 1) ELSE most END) AS at_most,
                    CASE WHEN profits > 0 AND sure > 0 THEN low / (CASE WHEN low >= 0 THEN most ELSE sure END) END
                        AS at_least FROM bounds),
            needs AS (SELECT block, coalesce(max(at_least, {LISTED})[{LISTED}], '-infinity'::DOUBLE) AS needed
                FROM worth GROUP BY block),
            few AS (SELECT block, cell FROM worth JOIN needs USING (block)
                WHERE at_most + abs(at_most) * 1e-12 >= needed),
            at_ticks AS (SELECT block, cell, seq, amount, unnest(range(a, z)) AS step
                FROM seen JOIN few USING (block, cell)),
            counted AS (SELECT block * {BLOCK} + step AS tick, cell, median(amount) / 1e9 AS profit,
                    count(*) - count(amount) AS empty, max(seq) AS newest
                FROM at_ticks GROUP BY ALL HAVING profit IS NOT NULL AND empty > 0)
            SELECT tick * {PERIOD_S} AS ts, row_number() OVER best AS place, cell, empty, profit,
                profit / empty AS value FROM counted
            WINDOW best AS (PARTITION BY tick ORDER BY profit / empty DESC, newest DESC, cell) QUALIFY place <= {LISTED}
        ) TO '{output}/snapshots.parquet'""")


def loads(parts: list[str], output: Path) -> None:
    data = connected()
    plug = ", ".join(PLUG)
    data.execute(f"""
        CREATE TEMP TABLE raw AS SELECT (timestamp - {BASE}) AS t, value, property, {plug} FROM {lines(parts, READING)};
        CREATE TEMP TABLE sums AS
        WITH ordered AS (SELECT *, max(t) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS newest FROM raw)
        SELECT {plug}, t // {TICK_S} AS step, sum(value) AS total, count(*) AS count
        FROM ordered WHERE t = newest AND property = 1 GROUP BY ALL;
        CREATE TEMP TABLE plugs AS
        WITH rows AS (SELECT *, unnest({list(SLICES)}) AS slice_s FROM sums),
        sliced AS (SELECT *, step // (slice_s // {TICK_S}) AS slice FROM rows),
        known AS (SELECT {plug}, slice_s, slice, step, sum(total) OVER so_far / sum(count) OVER so_far AS load,
                lead(step) OVER (PARTITION BY {plug}, slice_s, slice ORDER BY step) AS following FROM sliced
            WINDOW so_far AS (PARTITION BY {plug}, slice_s, slice ORDER BY step ROWS UNBOUNDED PRECEDING)),
        ended AS (SELECT *, least(following, (slice + 1) * (slice_s // {TICK_S}),
            (SELECT max(t) // {TICK_S} + 1 FROM raw)) AS until FROM known)
        SELECT {plug}, slice_s, slice, unnest(range(step, until)) AS step, load FROM ended;
        CREATE TEMP VIEW houses AS SELECT house_id, slice_s, slice, step, sum(load) AS load FROM plugs
        GROUP BY house_id, slice_s, slice, step""")
    for table, name in (("house", PLUG[:1]), ("plug", PLUG)):
        keys = ", ".join(name)
        same = " AND ".join(f"past.{key} = asked.{key}" for key in (*name, "slice_s"))
        data.execute(f"""
            COPY (
                WITH past AS (SELECT {keys}, slice_s, slice, load FROM {table}s
                    WHERE (step + 1) % (slice_s // {TICK_S}) = 0),
                asked AS (SELECT DISTINCT {keys}, slice_s, slice FROM {table}s),
                middles AS (SELECT {", ".join(f"asked.{key}" for key in (*name, "slice_s", "slice"))},
                        median(past.load) AS middle, count(*) AS days
                    FROM asked JOIN past ON {same} AND past.slice < asked.slice + 2
                        AND (asked.slice + 2 - past.slice) % ({DAY_S} // asked.slice_s) = 0
                    GROUP BY ALL)
                SELECT {BASE} + (step + 1) * {TICK_S} AS tick, slice_s, {BASE} + (slice + 2) * slice_s AS ts, {keys},
                    coalesce((load + middle) / 2, load) AS predicted_load, coalesce(days, 0) AS n_history
                FROM {table}s LEFT JOIN middles USING ({keys}, slice_s, slice) ORDER BY tick, slice_s, {keys}
            ) TO '{output}/{table}.parquet'""")


if __name__ == "__main__":
    answer({"debs2014-q1": loads, "debs2015-q1": routes, "debs2015-q2": areas})
