"""Answers of the taxi pipelines, as batch and stream: those of brute force at every tick and change."""

import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import debs2015_brute_force as brute_force
import pyarrow as pa
import pytest
from pyarrow import csv

from campaign.commands.main import run as command
from workloads.generate.taxi_trips import taxi_trips
from workloads.key_groups import KeyRouter, first_owners
from workloads.recordings.prepare import prepare
from workloads.recordings.recording import Recording
from workloads.recordings.schema import DEBS2015
from workloads.topology import load_topology
from workloads.traffic import load_traffic

pytestmark = [
    pytest.mark.spark,
    pytest.mark.pipelines,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore"),
]

SIDES = {"debs2015-q1": 300, "debs2015-q2": 600}
EXPECTED = {
    "debs2015-q1": (brute_force.frequent_snapshots, brute_force.frequent_changes),
    "debs2015-q2": (brute_force.profitable_snapshots, brute_force.profitable_changes),
}


@pytest.fixture(autouse=True)
def _few_rows(spark: Any) -> Iterator[None]:
    """Turn off code generation, which takes longer than the execution for so few rows."""
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    yield
    spark.conf.set("spark.sql.codegen.wholeStage", "true")


def generated(rows: int, every: int) -> list[bytes]:
    """Return `rows` lines: every `every`-th of the first rows of `millrace generate`."""
    table = pa.Table.from_batches(list(taxi_trips(rows * every, 5)))
    sink = pa.BufferOutputStream()
    csv.write_csv(table, sink, csv.WriteOptions(include_header=False, quoting_style="none"))
    return sink.getvalue().to_pybytes().splitlines()[::every]


def sparse(rows: int, seed: int) -> list[bytes]:
    """Return trips between few cells, with silences, ties of all kinds, negative fares, and a few bad rows."""
    random, made, now = Random(seed), [], 1_357_000_000  # noqa: S311 - no secret
    while len(made) < rows:
        now += random.choice([0, 0, 0, 1, 7, 60, 60, 300]) if random.random() < 0.97 else 5000
        late = now - {230: 60, 290: 4000}.get(len(made), 0)
        start, end = ((random.randrange(3), random.randrange(2)) for _ in "ab")
        places = [f"{value:.6f}" for x, y in (start, end) for value in (-74 + 0.003 * x, 40.7 + 0.00225 * y)]
        fields = [
            f"M{random.randrange(6)}",
            "L",
            brute_force._date(now - 600),
            brute_force._date(late),
            "600",
            "1",
            *places,
        ]
        fields += [
            "CSH",
            f"{random.randrange(-4, 12) / 4}",
            "0",
            "0",
            random.choice(["0", "0.25", "0.3333333"]),
            "0",
            "0",
        ]
        if random.random() < 0.01:
            fields[random.randrange(17)] = ""
        made.append(",".join(fields).encode())
    return made


def check(query: str, lines: Sequence[bytes], output: Path, period_s: int, tables: Sequence[str]) -> None:
    from spark_pipelines import table

    trips, quarantined = brute_force.valid_trips(lines, SIDES[query])
    summary = json.loads((output / "summary.json").read_text())
    assert summary == {"rows_read": len(lines), "quarantined": quarantined}
    assert sorted(path.name for path in output.iterdir()) == sorted(["summary.json", *tables])
    snapshots, changes = EXPECTED[query]
    if "snapshots" in tables:
        expected = [tuple(None if field is None else str(field) for field in row) for row in snapshots(trips, period_s)]
        assert table(output, "snapshots") == expected
    if "changes" in tables:
        found = table(output, "changes")
        expected = [tuple(None if field is None else str(field) for field in row) for row in changes(trips)]
        assert [row[:-1] for row in found] == expected
        assert all(int(row[-1] or -1) >= 0 for row in found)


def in_parts(lines: Sequence[bytes], folder: Path, about: Sequence[int]) -> Path:
    """Write parts whose names are not in order; each begins with a later time than any before."""
    times = [line.split(b",")[3] for line in lines]
    cuts = [next(at for at in range(cut, len(lines)) if times[at] > max(times[:at])) for cut in about]
    bounds = [0, *cuts, len(lines)]
    folder.mkdir()
    for at, (begin, end) in enumerate(pairwise(bounds)):
        (folder / f"part-{len(bounds) - at}").write_bytes(b"\n".join(lines[begin:end]))
    return folder


@pytest.mark.parametrize("query", SIDES)
def test_a_batch_of_a_busy_hour_has_the_answers_of_brute_force(query: str, pipelines: Any, tmp_path: Path) -> None:
    lines = generated(2500, 5)
    (tmp_path / "in").write_bytes(b"\n".join(lines))
    check(query, lines, pipelines(query, tmp_path / "in", "answer=both"), 60, ("snapshots", "changes"))


@pytest.mark.parametrize(("query", "period_s"), [("debs2015-q1", 70), ("debs2015-q2", 60)])
def test_days_with_silences_have_the_answers_of_brute_force_as_batch_and_stream(
    query: str, period_s: int, pipelines: Any, tmp_path: Path
) -> None:
    lines = sparse(450, 11)
    parts = in_parts(lines, tmp_path / "in", [220])
    for stream in (False, True):
        output = pipelines(query, parts, "answer=both", f"period_s={period_s}", stream=stream)
        check(query, lines, output, period_s, ("snapshots", "changes"))


def test_a_period_longer_than_the_window_leaves_trips_out(pipelines: Any, tmp_path: Path) -> None:
    lines = sparse(600, 12)
    (tmp_path / "in").write_bytes(b"\n".join(lines))
    check("debs2015-q1", lines, pipelines("debs2015-q1", tmp_path / "in", "period_s=3600"), 3600, ("snapshots",))


def test_lines_from_a_socket_are_answered_when_it_is_closed(pipelines: Any) -> None:
    lines = sparse(400, 13)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                for at in range(0, len(lines), 150):
                    peer.sendall(b"\n".join(lines[at : at + 150]) + b"\n" * (at + 150 < len(lines)))

        thread = threading.Thread(target=serve)
        thread.start()
        source = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        output = pipelines("debs2015-q1", source, "answer=changes", stream=True)
        thread.join()
    check("debs2015-q1", lines, output, 60, ("changes",))


def test_prepare_sorts_rows_and_reports_bad_ones(pipelines: Any, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    lines = [line for line in sparse(600, 14) if len(brute_force.valid_trips([line], 300)[0]) == 1]
    in_order = sorted(lines, key=lambda line: line.split(b",")[3])
    shuffled = [*Random(1).sample(in_order, len(in_order)), b"", b"nonsense", in_order[0].replace(b"M", b"\xff", 1)]  # noqa: S311
    topology = tmp_path / "topology.yml"
    topology.write_text(
        "id: t\ncomponents:\n  - {id: s, kind: spout, parallelism: 2}\n"
        "  - {id: b, kind: bolt, parallelism: 3, inputs: [{from: s, grouping: fields, fields: [medallion]}]}\n"
    )
    (tmp_path / "in").write_bytes(b"\n".join(shuffled))
    output = pipelines("prepare", tmp_path / "in", f"topology={topology}", "speedup=10", kind="parquet")

    assert json.loads((output / "summary.json").read_text()) == {
        "rows_read": len(shuffled),
        "quarantined": {"malformed": 3, "outlier": 0, "out_of_order": 0},
    }
    (tmp_path / "sorted").write_bytes(b"\n".join(in_order))
    expected = prepare(tmp_path / "sorted", DEBS2015, tmp_path / "a")
    found = prepare(output / "recording", DEBS2015, tmp_path / "b")
    rows = [list(zip(*Recording(each.path).take(1000), strict=True)) for each in (expected, found)]
    assert [row[3] for row in rows[1]] == [row[3] for row in rows[0]]
    assert sorted(row[1:] for row in rows[1]) == sorted(row[1:] for row in rows[0])
    assert found.quarantined == {"malformed": 0, "outlier": 0, "out_of_order": 0}
    bad = pq.read_table(output / "quarantine").to_pylist()
    assert [row["reason"] for row in bad] == [
        "1 fields, expected 17",
        "1 fields, expected 17",
        f"medallion: got '\N{REPLACEMENT CHARACTER}{in_order[0].split(b',')[0][1:].decode()}', expected UTF-8",
    ]
    assert {row["class"] for row in bad} == {"malformed"}
    profile = json.loads((output / "profile.json").read_text())
    assert profile["rows"] == len(lines)
    assert profile["put_in_order"] > 0
    assert profile["keys"]["medallion"]["distinct"] == 6
    rates = pq.read_table(output / "rates").to_pydict()
    assert sum(rates["rows"]) == len(lines)
    assert rates["time"] == sorted({row[3] for row in rows[0]})
    assert profile["seconds_with_rows"] == len(rates["time"])
    traffic = load_traffic(output / "traffic.yml", [load_topology(topology)])
    counts = Counter(KeyRouter(first_owners(3))((row[1],)) for row in rows[0])
    assert traffic.rate == pytest.approx(
        {
            (f"s[{spout}]", f"b[{bolt}]"): 10 * count / profile["span_s"] / 2
            for spout in range(2)
            for bolt, count in counts.items()
        }
    )
    place = ["place", "--cluster", "loopback", "--topology", str(topology), "--scheduler", "t-storm"]
    assert command([*place, "--traffic", str(output / "traffic.yml")]) == 0


def test_prepared_rows_give_the_answers_of_their_raw_rows(pipelines: Any, tmp_path: Path) -> None:
    lines = sparse(500, 15)
    quarantined = brute_force.valid_trips(lines, 300)[1]
    assert quarantined["out_of_order"] > 0
    (tmp_path / "in").write_bytes(b"\n".join(lines))
    output = pipelines("prepare", tmp_path / "in", kind="parquet")
    answer = pipelines("debs2015-q1", output / "recording", "answer=changes")
    malformed = quarantined["malformed"]
    in_order = sorted(lines, key=lambda line: line.split(b",")[3])
    well_formed = [line for line in in_order if brute_force.valid_trips([line], 300)[1]["malformed"] == 0]
    assert len(lines) - len(well_formed) == malformed
    check("debs2015-q1", well_formed, answer, 60, ("changes",))


def test_spark_reads_and_filters_a_recording_prepared_by_a_campaign(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"\n".join(generated(20_000, 1)))
    prepared = prepare(tmp_path / "in", DEBS2015, tmp_path / "prepared")
    names = [row[1] for row in zip(*Recording(prepared.path).take(20_000), strict=True)]
    middle = sorted(names)[len(names) // 2]
    filtered = spark.read.parquet(str(prepared.path)).where(f"medallion > '{middle}'")
    assert filtered.count() == sum(name > middle for name in names)
