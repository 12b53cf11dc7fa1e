"""Collected traces keep few, large row groups, however often their writers flushed."""

from pathlib import Path

import pyarrow.parquet
import pytest

from agents import trace
from agents.trace import TraceWriter, collect


def test_small_batches_of_many_processes_share_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_ROW_GROUP", 50)
    for worker in range(3):
        writer = TraceWriter(tmp_path / "raw", "run", "n1", worker)
        for second in range(40):
            writer.add("latency", second, f"count[{worker}]", 100 * second, 1)
            writer.flush()
        writer.close()
    assert collect([tmp_path / "raw"], tmp_path / "traces")["latency"] == 120
    with pyarrow.parquet.ParquetFile(tmp_path / "traces" / "latency.parquet") as file:
        assert [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)] == [50, 50, 20]
        rows = file.read().to_pylist()
    assert [(row["worker"], row["t_ns"]) for row in rows] == [(w, s) for w in range(3) for s in range(40)]
