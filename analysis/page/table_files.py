"""The report's tables as files."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from analysis.statistics.intervals import without_noise
from analysis.statistics.metrics import Rows

FORMULA = ("=", "+", "-", "@")
"""First characters of spreadsheet formulas."""


def write_csv(path: Path, columns: Sequence[str], rows: Rows) -> None:
    """Write a table into a file, as `csv_text` arranges it."""
    path.write_text(csv_text(columns, rows), encoding="utf-8")


def csv_text(columns: Sequence[str], rows: Rows) -> str:
    """Return a header and one line per row: missing values are empty, booleans `true` or `false`, formulas escaped."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row[c]) for c in columns])
    return text.getvalue()


def _cell(value: object) -> object:
    """Return a value as written to a CSV file.

    Text that a spreadsheet would evaluate as a formula is escaped with an apostrophe.
    """
    match value:
        case bool():
            return str(value).lower()
        case float():
            return without_noise(value)
        case str() if value.startswith(FORMULA):
            return f"'{value}"
    return value
