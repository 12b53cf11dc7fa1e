"""Layout of answers: columns of `snapshots` and `changes`, and the text of cells, routes and times."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from workloads.operators import Row
from workloads.topology import FieldType
from workloads.workload import Answer, Verdict, rows_differ

SNAPSHOTS, CHANGES = "snapshots", "changes"
"""Tables of the answer."""

LISTED = 10
"""Routes or areas in a listing."""

CELL = 1000
"""Factor of the first number of a cell; larger than any grid."""

ROUTE = CELL * CELL

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  official times have no zone


def snapshot_columns(listed: Mapping[str, FieldType]) -> Mapping[str, FieldType]:
    """Return the columns of `snapshots`; `listed` are the columns of one route or area."""
    return {"ts": "str", **_numbered(listed)}


def change_columns(listed: Mapping[str, FieldType]) -> Mapping[str, FieldType]:
    """Return the columns of `changes`; `listed` are the columns of one route or area."""
    times: Mapping[str, FieldType] = {"change": "int", "pickup_datetime": "str", "dropoff_datetime": "str"}
    return {**times, **_numbered(listed), "delay_ms": "int"}


def _numbered(listed: Mapping[str, FieldType]) -> dict[str, FieldType]:
    return {f"{name}_{place}": kind for place in range(1, LISTED + 1) for name, kind in listed.items()}


def listing_fields(entries: Iterable[Sequence[Any]], width: int) -> Row:
    """Return the fields of the listed routes or areas, `width` each, best first.

    Fields are None if fewer than ten are listed.
    """
    fields = [field for entry in entries for field in entry]
    return (*fields, *[None] * (LISTED * width - len(fields)))


def cell_name(cell: int) -> str:
    """Return the cell as `x.y`."""
    return f"{cell // CELL}.{cell % CELL}"


def route_names(route: int) -> tuple[str, str]:
    """Return the start and the end of a route."""
    return cell_name(route // ROUTE), cell_name(route % ROUTE)


def time_text(seconds: int) -> str:
    """Return seconds since 1970 as `YYYY-MM-DD hh:mm:ss`."""
    return (_EPOCH + timedelta(seconds=seconds)).isoformat(sep=" ")


def same(answer: Answer, reference: Answer) -> Verdict:
    """Compare the tables of `reference` completely, except for the delays."""
    differences, checked = [], 0
    for table, expected in reference.items():
        given = answer.get(table, ())
        if table == CHANGES:
            given, expected = [row[:-1] for row in given], [row[:-1] for row in expected]
        differences += [f"{table}: {text}" for text in rows_differ(given, expected, key_fields=1)]
        checked += len(expected)
    return Verdict(not differences, checked, "; ".join(differences[:3]))
