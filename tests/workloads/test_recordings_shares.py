"""Shares of executors in a prepared recording: every row once, in order, from any position, at its time."""

import subprocess
import sys
from bisect import bisect_right
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inventory.errors import RunError
from inventory.times import NS
from workloads.arrays import batch_rows
from workloads.operators import Context
from workloads.rates import Max, Replay
from workloads.recordings.prepare import prepare
from workloads.recordings.recording import ColumnRecordedSpout, RecordedSpout, Recording, emitted
from workloads.recordings.schema import DEBS2014, DEBS2015
from workloads.source_clock import source_clock

ROOT = Path(__file__).parents[2]
START = 1377986401
NAMES = ("timestamp", "plug_id")


class Plugs(RecordedSpout):
    """Spout of seconds and plugs."""

    columns = NAMES


class ColumnPlugs(ColumnRecordedSpout):
    """Column spout of seconds and plugs."""

    columns = NAMES


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recording of 500 rows in row groups of 32, with ties and silences."""
    folder = tmp_path_factory.mktemp("recording")
    random = Random(5)  # noqa: S311  a repeatable recording
    second, lines = START, []
    for plug in range(500):
        lines.append("bad\n" if plug % 7 == 3 else f"1,{second},1,1,{plug},0,0\n")
        second += random.choice([0, 0, 0, 1, 2, 50])
    (folder / "raw").write_text("".join(lines))
    with patch("workloads.recordings.prepare.GROUP_ROWS", 32):
        return prepare(folder / "raw", DEBS2014, folder).path


@pytest.fixture(scope="module")
def rows(recording: Path) -> list[tuple[int, int]]:
    """All rows of the recording, as read by pyarrow."""
    assert pq.ParquetFile(recording).metadata.num_row_groups > 10
    table = pq.read_table(recording)
    return list(zip(*(table.column(name).to_pylist() for name in NAMES), strict=True))


def taken(share: Recording, limit: int) -> list[tuple[Any, ...]]:
    return list(zip(*share.take(limit), strict=True))


shares = st.integers(1, 40).flatmap(lambda of: st.tuples(st.integers(0, of - 1), st.just(of)))


@given(share=shares, limits=st.lists(st.integers(0, 200), max_size=8))
def test_a_share_is_every_nth_row_for_any_limits(
    share: tuple[int, int], limits: list[int], recording: Path, rows: list[tuple[int, int]]
) -> None:
    index, of = share
    own = rows[index::of]
    reading = Recording(recording, index, of, NAMES)
    assert (reading.rows, reading.records) == (len(rows), len(own))
    found = []
    for limit in limits:
        batch = taken(reading, limit)
        assert len(batch) == min(limit, len(own) - len(found))
        found += batch
        assert reading.position == len(found)
    assert found == own[: len(found)]
    found += taken(reading, 1000)
    assert found == own
    assert reading.take(5) == [[], []]


@given(share=shares, positions=st.lists(st.integers(0, 60), min_size=1, max_size=6))
def test_a_share_goes_on_from_any_position(
    share: tuple[int, int], positions: list[int], recording: Path, rows: list[tuple[int, int]]
) -> None:
    index, of = share
    own = rows[index::of]
    reading = Recording(recording, index, of, NAMES)
    for position in positions:
        reading.skip(position)
        assert taken(reading, 7) == own[position : position + 7]


@given(share=shares, moments=st.lists(st.integers(-NS, 2000 * NS), max_size=8))
def test_times_and_counts_are_those_of_the_rows_of_the_share(
    share: tuple[int, int], moments: list[int], recording: Path, rows: list[tuple[int, int]]
) -> None:
    index, of = share
    times = [second * NS for second, _ in rows[index::of]]
    reading = Recording(recording, index, of, NAMES)
    assert [reading.times.due_ns(record) for record in range(len(times))] == times
    for behind in (len(times), len(times) + 10**9):
        with pytest.raises(IndexError):
            reading.times.due_ns(behind)
    for moment in [START * NS + moment for moment in moments] + times[::25] + [time - 1 for time in times[::25]]:
        assert reading.times.due_count(moment) == bisect_right(times, moment)
    assert reading.origin_ns == START * NS


@given(positions=st.lists(st.integers(0, 60), min_size=1, max_size=12))
def test_emitted_rows_are_those_before_the_positions_of_the_shares(
    positions: list[int], recording: Path, rows: list[tuple[int, int]]
) -> None:
    of = len(positions)
    expected = [row for at, row in enumerate(rows) if at // of < positions[at % of]]
    found = list(emitted(recording, positions, NAMES))
    assert [row for table in found for row in zip(*table.to_pydict().values(), strict=True)] == expected


def opened(recording: Path, index: int = 0, of: int = 1, tick_ns: int = 0) -> Plugs:
    spout = Plugs(tick_ns)
    spout.open(Context("spout", index, of, inputs={"recording": str(recording)}))
    return spout


@given(
    share=shares,
    ahead=st.sampled_from([1, 10, 1000]),
    events=st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["columns", "rows", "seek"]), st.integers(1, 60)),
            st.just(("restore", 0)),
        ),
        max_size=12,
    ),
)
def test_a_spout_that_prepares_columns_ahead_emits_the_records_of_its_position(
    share: tuple[int, int], ahead: int, events: list[tuple[str, int]], recording: Path, rows: list[tuple[int, int]]
) -> None:
    own = rows[share[0] :: share[1]]
    position = 0

    def new_spout() -> ColumnPlugs:
        spout = ColumnPlugs()
        spout.MOST_AHEAD = ahead
        spout.open(Context("spout", *share, inputs={"recording": str(recording)}))
        return spout

    spout = new_spout()
    for event, number in events:
        match event:
            case "columns" | "rows":
                found = batch_rows(spout.next_columns(number)) if event == "columns" else spout.next_batch(number)
                assert found == own[position : position + number]
                position += len(found)
            case "seek":
                position = min(number, len(own))
                spout.seek(position)
            case "restore":
                state = spout.snapshot()
                spout = new_spout()
                spout.restore(state)


def test_a_spout_of_a_recording_goes_on_from_its_snapshot(recording: Path, rows: list[tuple[int, int]]) -> None:
    first, second = opened(recording, 1, 3), opened(recording, 1, 3)
    before = first.next_batch(50)
    second.restore(first.snapshot())
    assert [*before, *second.next_batch(1000)] == rows[1::3]
    assert second.next_batch(10) == []


def test_a_replay_starts_at_the_first_record_of_all_shares_and_ticks_are_at_whole_multiples(
    recording: Path, rows: list[tuple[int, int]]
) -> None:
    spout = opened(recording, 2, 3, tick_ns=30 * NS)
    clock = source_clock(Replay(10.0), spout, 2, 3, 0)
    assert clock.due_ns(0) == (rows[2][0] - START) * NS // 10
    assert clock.stream_ns(0) == rows[2][0] * NS
    tick = (START // 30 + 1) * 30
    assert clock.tick_due_ns(tick * NS) == (tick - START) * NS // 10
    assert clock.due_count(0) == sum(second == START for second, _ in rows[2::3])
    assert source_clock(Max(), spout, 2, 3, 0).stream_ns(0) == rows[2][0] * NS


def test_a_trip_lies_before_the_tick_at_its_drop_off_time(tmp_path: Path) -> None:
    trip = "m,l,2013-01-01 00:00:00,2013-01-01 00:0{}:00,60,1,-73.95,40.71,-73.96,40.71,CSH,1,0,0,0,0,1\n"
    (tmp_path / "raw").write_text("".join(trip.format(minute) for minute in (2, 2, 3)))
    found = prepare(tmp_path / "raw", DEBS2015, tmp_path)
    share = Recording(found.path)
    two = 1356998520
    assert share.origin_ns == two * NS - 1
    assert [share.times.due_ns(record) for record in range(3)] == [two * NS - 1, two * NS - 1, (two + 60) * NS - 1]
    assert [share.times.due_count(two * NS - 1), share.times.due_count(two * NS - 2)] == [2, 0]
    assert share.take(1)[1] == ["m"]


def test_a_node_needs_no_numpy_to_read_a_recording(recording: Path, rows: list[tuple[int, int]]) -> None:
    program = (
        "import sys; sys.modules['numpy'] = None\n"
        "from pathlib import Path; import workloads.recordings.recording\n"
        "from workloads.recordings.recording import Recording\n"
        f"share = Recording(Path({str(recording)!r}), 1, 2, {NAMES})\n"
        "print(list(zip(*share.take(9))), share.times.due_count(10**19))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == f"{rows[1:19:2]} {len(rows[1::2])}"


def test_a_file_that_is_no_prepared_recording_is_refused(tmp_path: Path, recording: Path) -> None:
    with pytest.raises(RunError, match="it cannot be read: No such file"):
        Recording(tmp_path / "missing")
    (tmp_path / "text").write_text("text")
    with pytest.raises(RunError, match="it cannot be read as a recording"):
        Recording(tmp_path / "text")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other")
    with pytest.raises(RunError, match="not a prepared recording"):
        Recording(tmp_path / "other")
    with pytest.raises(RunError, match="a recording debs2014 has no column 'medallion'"):
        Recording(recording, 0, 1, ["medallion"])


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(0, 4), st.lists(st.integers(1, 90), min_size=1, max_size=6), st.integers(0, 90))
def test_columns_have_the_same_rows_with_64_bit_integers(
    recording: Path, of: int, index: int, limits: list[int], start: int
) -> None:
    names = ("value", "property", "seq")
    shares = [Recording(recording, index % of, of, names) for _ in range(2)]
    for share in shares:
        share.skip(start)
    for limit in limits:
        columns = shares[1].take_columns(limit)
        assert [column.type for column in columns] == [pa.float64(), pa.int64(), pa.int64()]
        assert [column.to_pylist() for column in columns] == shares[0].take(limit)
    assert shares[0].position == shares[1].position
