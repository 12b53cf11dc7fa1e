"""The report's tables as files."""

import csv
from collections.abc import Sequence
from pathlib import Path

from analysis.statistics.intervals import without_noise
from analysis.statistics.metrics import Rows

FORMULA = ("=", "+", "-", "@")
"""First characters of spreadsheet formulas."""


def write_csv(path: Path, columns: Sequence[str], rows: Rows) -> None:
    """Write a header and one line per row: missing values are empty, booleans `true` or `false`, formulas escaped."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            writer.writerow([_cell(row[c]) for c in columns])


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


def read_csv(path: Path, text: Sequence[str]) -> Rows:
    """Return the rows of a table of numbers, with text in the columns `text`; empty numbers are None."""
    with path.open(encoding="utf-8", newline="") as file:
        return [{c: _text(v) if c in text else _number(v) for c, v in row.items()} for row in csv.DictReader(file)]


def _text(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell


def _number(cell: str) -> float | None:
    return float(cell) if cell else None
