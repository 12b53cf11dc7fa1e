"""A run's latency log, read back by HdrHistogram's own reader."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from hypothesis import given
from hypothesis import strategies as st

from agents.collected_traces import collect
from agents.trace import TraceWriter
from agents.worker.executors.executor import bucket
from campaign.results.hdr_log import encoded, write_latency_log
from inventory.times import NS

START = 70 * NS
HOUR = 3600 * NS

values = st.one_of(st.integers(0, 600), st.integers(0, 10**6), st.integers(0, 24 * HOUR))


@given(st.dictionaries(values, st.integers(1, 2**40) | st.integers(1, 9), max_size=30))
def test_hdrhistogram_reads_the_counts_that_were_written(counts: dict[int, int]) -> None:
    by_bucket: Counter[int] = Counter()
    for value, count in counts.items():
        by_bucket[bucket(value)] += count
    read = HdrHistogram.decode(encoded(by_bucket))
    assert read.get_total_count() == sum(counts.values())
    for value in counts:
        assert read.get_count_at_value(value) == by_bucket[bucket(value)]
    if counts:
        assert bucket(read.get_max_value()) == bucket(max(counts))


@given(st.lists(values.filter(lambda value: value > 0), min_size=1, max_size=60))
def test_percentiles_equal_those_of_hdrhistogram(recorded: list[int]) -> None:
    peer = HdrHistogram(1, 24 * HOUR, 2)
    for value in recorded:
        peer.record_value(value)
    read = HdrHistogram.decode(encoded(Counter(map(bucket, recorded))))
    for percentile in (10, 50, 99, 99.9, 100):
        expected = peer.get_value_at_percentile(percentile)
        assert bucket(read.get_value_at_percentile(percentile)) == bucket(expected)


def written(folder: Path, **offsets: int) -> Path:
    """Write the log of a run with two sinks on two nodes."""
    for node, slot, executor, first in (("n1", 0, "c[0]", 1), ("n2", 1, "c[1]", 2)):
        writer = TraceWriter(folder, "r", node, slot)
        for second in range(first, 6):
            at = START + second * NS + offsets.get(node, 0)
            writer.add("latency", at, executor, bucket(2_000_000), 10, None)
            writer.add("latency", at, executor, bucket(second * 1_000_000_000), 1, None)
            writer.flush()
        writer.close()
    collect([folder], folder / "parquet")
    utc = datetime(2026, 3, 1, 10, 0, 0, 250_000, tzinfo=UTC)
    write_latency_log(folder / "parquet", folder / "x.hlog", START, utc, (START + 2 * NS, START + 5 * NS), offsets)
    return folder / "x.hlog"


@pytest.mark.parametrize("offset", [0, -55 * NS])
def test_every_second_of_every_sink_is_a_line_from_the_sources_start(tmp_path: Path, offset: int) -> None:
    path = written(tmp_path, n2=offset)
    lines = [line.split(",") for line in path.read_text().splitlines() if line.startswith("Tag=")]
    assert [(tag, float(begin), float(length)) for tag, begin, length, *_ in lines[:5]] == [
        ("Tag=c[0]", 0.0, 1.0),
        ("Tag=c[0]", 1.0, 1.0),
        ("Tag=c[1]", 1.0, 1.0),
        ("Tag=c[0]", 2.0, 1.0),
        ("Tag=c[1]", 2.0, 1.0),
    ]
    assert [float(line[3]) for line in lines] == pytest.approx(
        [1000, 2000, 2000, 3000, 3000, 4000, 4000, 5000, 5000], rel=0.01
    )
    assert "#[Measured interval: 2.000 to 5.000]" in path.read_text()


def test_the_log_reader_of_hdrhistogram_adds_up_a_run(tmp_path: Path) -> None:
    total = HdrHistogram(1, 24 * HOUR, 2)
    reader = HistogramLogReader(str(written(tmp_path)), total)
    try:
        while reader.add_next_interval_histogram():
            pass
    finally:
        reader.close()
    assert total.get_total_count() == 9 * 11
    assert total.get_value_at_percentile(50) == pytest.approx(2_000_000, rel=0.01)
    assert total.get_max_value() == pytest.approx(5_000_000_000, rel=0.01)


def test_a_run_without_samples_has_a_log_without_lines(tmp_path: Path) -> None:
    TraceWriter(tmp_path, "r", "n1", 0).close()
    collect([tmp_path], tmp_path / "parquet")
    utc = datetime(2026, 3, 1, tzinfo=UTC)
    write_latency_log(tmp_path / "parquet", tmp_path / "x.hlog", START, utc, (START, START), {})
    assert not [line for line in (tmp_path / "x.hlog").read_text().splitlines() if line[0] not in '#"']
