"""Hand-made raw rows of taxi trips."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

START = datetime(2013, 1, 1)  # noqa: DTZ001  official times have no zone


def row(
    dropoff: int,
    start: tuple[int, int] = (1, 1),
    end: tuple[int, int] = (1, 1),
    medallion: str = "M",
    fare: str = "1.00",
    tip: str = "0.00",
    step: tuple[int, int] = (5986, 4491.556),
) -> str:
    """Return a one-minute trip that ends at a second after midnight, between the centres of cells of 500 m."""
    return raw(
        medallion=medallion,
        pickup=at(dropoff - 60),
        dropoff=at(dropoff),
        points=(*_centre(start, step), *_centre(end, step)),
        fare=fare,
        tip=tip,
    )


def raw(
    medallion: str = "M",
    licence: str = "L",
    pickup: str = "2013-01-01 00:00:00",
    dropoff: str = "2013-01-01 00:01:00",
    points: Iterable[str] = ("-74.0", "40.7", "-74.0", "40.7"),
    fare: str = "1.00",
    tip: str = "0.00",
) -> str:
    """Return a row of the 17 fields as given."""
    return ",".join(
        [medallion, licence, pickup, dropoff, "60", "1", *points, "CSH", fare, "0.5", "0.5", tip, "0", "2.00"]
    )


def at(seconds: int) -> str:
    """Return the time so many seconds after midnight."""
    return str(START + timedelta(seconds=seconds))


def _centre(cell: tuple[int, int], step: tuple[float, float]) -> tuple[str, str]:
    east, south = step
    return f"{-74.913585 + (cell[0] - 1) * east / 1e6:.6f}", f"{41.474937 - (cell[1] - 1) * south / 1e6:.6f}"


def write_rows(path: Path, rows: Iterable[str]) -> Path:
    """Write rows to a file; return its path."""
    path.write_text("".join(line + "\n" for line in rows))
    return path
