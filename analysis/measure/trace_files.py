"""The trace files of a run, `<table>.parquet`, read so that every row says which time it covers."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from agents.trace import COVERING
from analysis.measure.covered import with_since
from inventory.atomic_files import replacing_path

_KEY = ("node", "worker", "t_ns")


def read_table(traces: Path, table: str, *columns: str) -> pa.Table:
    """Return these columns of a table, with node, worker and time; `since_ns` is the begin of the time covered."""
    path = traces / f"{table}.parquet"
    if table not in COVERING:
        return pyarrow.parquet.read_table(path, columns=[*_KEY, *columns])
    own = ("scope", "name") if table == "cpu" else ()
    asked = list(dict.fromkeys([*_KEY, *own, *columns, "since_ns"]))
    with pyarrow.parquet.ParquetFile(path) as file:
        rows = file.read([name for name in asked if name in file.schema_arrow.names])
    return _complete(traces, table, rows).select([*_KEY, *columns, "since_ns"])


def says_since(traces: Path, table: str) -> bool:
    """Return whether every row of a table says which time it covers, by the footer of the file."""
    with pyarrow.parquet.ParquetFile(traces / f"{table}.parquet") as file:
        if "since_ns" not in file.schema_arrow.names:
            return False
        at = file.schema_arrow.names.index("since_ns")
        groups = (file.metadata.row_group(number).column(at).statistics for number in range(file.num_row_groups))
        return all(each is not None and each.null_count == 0 for each in groups)


def completed(traces: Path, table: str, folder: Path) -> Path:
    """Return a file of a table in which every row says which time it covers: that of the run, or a copy in `folder`."""
    path = traces / f"{table}.parquet"
    if table not in COVERING or says_since(traces, table):
        return path
    copy = folder / path.name
    if not copy.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # Several threads may ask for the same table at once.
        with replacing_path(copy) as partial:
            pyarrow.parquet.write_table(_complete(traces, table, pyarrow.parquet.read_table(path)), partial)
    return copy


def _complete(traces: Path, table: str, rows: pa.Table) -> pa.Table:
    if "since_ns" in rows.column_names and not rows["since_ns"].null_count:
        return rows
    reports = rows if table == "cpu" else pyarrow.parquet.read_table(traces / "throughput.parquet", columns=list(_KEY))
    return with_since(table, rows, reports)
