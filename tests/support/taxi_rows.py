"""Raw rows of taxi trips, made by hand."""

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
    """A trip of one minute that ends so many seconds after midnight, between the centres of cells of 500 m."""
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
    """The 17 fields, as they are given."""
    return ",".join(
        [medallion, licence, pickup, dropoff, "60", "1", *points, "CSH", fare, "0.5", "0.5", tip, "0", "2.00"]
    )


def at(seconds: int) -> str:
    """A time so many seconds after midnight."""
    return str(START + timedelta(seconds=seconds))


def _centre(cell: tuple[int, int], step: tuple[float, float]) -> tuple[str, str]:
    east, south = step
    return f"{-74.913585 + (cell[0] - 1) * east / 1e6:.6f}", f"{41.474937 - (cell[1] - 1) * south / 1e6:.6f}"


def written(path: Path, rows: Iterable[str]) -> Path:
    """The rows as a file."""
    path.write_text("".join(line + "\n" for line in rows))
    return path
