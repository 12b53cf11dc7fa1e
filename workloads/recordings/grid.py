"""The grids of DEBS 2015: flat squares of 500 m or 250 m, in whole nanodegrees.

41.474937 degrees north, 74.913585 degrees west is the centre of cell 1.1; the first number of a cell grows to the east,
the second to the south. A point on a border belongs to the cell east or south of it.
"""

from dataclasses import dataclass
from typing import TypeVar

from workloads.recordings.fields import Values

Number = TypeVar("Number", int, Values)
"""One whole number, or an array of them."""

CENTRE_LONGITUDE = -74_913_585_000
CENTRE_LATITUDE = 41_474_937_000


@dataclass(frozen=True)
class Grid:
    """A grid of `side` x `side` cells.

    Attributes:
        side: cells in each direction; they are numbered 1..side.
        east, south: length of a cell in nanodegrees of longitude and latitude.
    """

    side: int
    east: int
    south: int

    def x(self, longitude: Number) -> Number:
        """Return first number of the cell at `longitude`, in nanodegrees; outside of 1..side: not on the grid."""
        return (longitude - self.west_border) // self.east + 1

    def y(self, latitude: Number) -> Number:
        """Return second number of the cell at `latitude`, in nanodegrees; outside of 1..side: not on the grid."""
        return (self.north_border - latitude) // self.south + 1

    @property
    def west_border(self) -> int:
        """The western border of cells 1.y, which belongs to them."""
        return CENTRE_LONGITUDE - self.east // 2

    @property
    def north_border(self) -> int:
        """The northern border of cells x.1, which belongs to them."""
        return CENTRE_LATITUDE + self.south // 2


CELLS_500_M = Grid(300, 5_986_000, 4_491_556)
"""Of query 1."""

CELLS_250_M = Grid(600, 2_993_000, 2_245_778)
"""Of query 2."""
