"""Kinds of generated data by name, and the writer of their rows as text; the file appears once it is complete."""

import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa
from pyarrow import csv

from inventory.atomic_files import replacing_file
from inventory.errors import UnfitError
from workloads.generate.book_lines import book_lines
from workloads.generate.smart_plugs import smart_plugs
from workloads.generate.taxi_trips import taxi_trips

GZIP_LEVEL = 1
"""Compression must not take longer than generating the rows."""


def write_rows(path: Path, batches: Iterable[pa.RecordBatch], report_rows: Callable[[int], None]) -> None:
    """Write batches of one schema as lines without a header, with commas between fields and no quotes.

    Args:
        path: of the file; an existing one is replaced.
        batches: the next one is generated while one is written.
        report_rows: receives the number of rows written so far.

    Raises:
        UnfitError: the file cannot be written.
    """
    options = csv.WriteOptions(include_header=False, quoting_style="none")
    written = 0
    try:
        with _sink(path) as sink, ThreadPoolExecutor(1) as writing:
            pending = None
            for batch in batches:
                if pending is not None:
                    pending.result()
                    report_rows(written)
                pending = writing.submit(csv.write_csv, pa.Table.from_batches([batch]), sink, options)
                written += len(batch)
            if pending is not None:
                pending.result()
                report_rows(written)
    except OSError as fault:
        raise UnfitError(f"{path}: cannot be written: {fault.strerror or fault}") from None


@contextmanager
def _sink(path: Path) -> Iterator[IO[bytes]]:
    with replacing_file(path) as file:
        if path.suffix == ".gz":
            # Without a name and a time, the same rows are the same bytes.
            with gzip.GzipFile("", "wb", GZIP_LEVEL, file, mtime=0) as packed:
                yield packed  # type: ignore[misc]  # a GzipFile is all that is needed of IO
        else:
            yield file


Kind = Callable[[int, int], Iterator[pa.RecordBatch]]
"""From a number of rows and a seed to these rows in batches."""

KINDS: Mapping[str, Kind] = {"debs2014": smart_plugs, "debs2015": taxi_trips, "text": book_lines}
