"""Rows of text to a file, packed where its name ends in `.gz`; there is no file before it is whole."""

import gzip
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa
from pyarrow import csv

from inventory.atomic_file import aside
from inventory.errors import UnfitError

GZIP_LEVEL = 1
"""Packing must not take longer than making the rows."""


def write_rows(path: Path, batches: Iterable[pa.RecordBatch], report_rows: Callable[[int], None]) -> None:
    """Write batches of one schema as lines without a header, fields parted by commas and never quoted.

    Args:
        path: of the file; one that is there is replaced.
        batches: the next one is made while one is written.
        report_rows: is told how many rows have been written.

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
    with aside(path) as file:
        if path.suffix == ".gz":
            # Without a name and a time, the same rows are the same bytes.
            with gzip.GzipFile("", "wb", GZIP_LEVEL, file, mtime=0) as packed:
                yield packed  # type: ignore[misc]  # a GzipFile is all that is needed of IO
        else:
            yield file
