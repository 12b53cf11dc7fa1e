"""Colours of figures and pictures, in a light and a dark theme, and styles of schedulers."""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Colour:
    """A colour in both themes; `name` is its CSS variable and class."""

    name: str
    light: str
    dark: str


INK = Colour("ink", "#1b2027", "#e8ebef")
MUTED = Colour("muted", "#5a636e", "#a3adb8")
GRID = Colour("grid", "#e2e5e9", "#343b44")
GROUND = Colour("ground", "#fefefe", "#161a1f")
SHADE = Colour("shade", "#f0f2f4", "#20262d")

SERIES = (
    Colour("s0", "#0b5cd6", "#38a6f8"),
    Colour("s1", "#dd6b10", "#d9773a"),
    Colour("s2", "#0a9d63", "#45e596"),
    Colour("s3", "#96198f", "#dc48cf"),
    Colour("s4", "#5f3c12", "#f2de4e"),
    Colour("s5", "#555a60", "#ccd4dc"),
)
"""Distinct with normal sight, protanopia, deuteranopia and tritanopia, on both backgrounds (checked by a test)."""

PALETTE = (INK, MUTED, GRID, GROUND, SHADE, *SERIES)

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
Dash = tuple[int, tuple[float, ...]] | Literal["-"]
DASHES: tuple[Dash, ...] = (
    "-",
    (0, (4.5, 1.8)),
    (0, (1.2, 1.4)),
    (0, (7, 1.8, 1.2, 1.8)),
    (0, (11, 2.5)),
    (0, (2.5, 1.2, 2.5, 4.5)),
    (0, (7, 1.6, 1.2, 1.6, 1.2, 1.6)),
)
"""Dashes of lines, in line widths; their number and that of the hues have no common factor."""

_MARKS = 6
"""Number of marks on a line that has them."""


@dataclass(frozen=True)
class Look:
    """Style of a scheduler in every figure: lines also differ without colour, as do the dots of the first seven.

    Attributes:
        colour: colour of lines and dots.
        marker: shape of dots.
        dash: dash pattern of lines.
        mark: shape of marks on lines once all dash patterns are used; empty before.
    """

    colour: Colour
    marker: str
    dash: Dash
    mark: str = ""

    def line(self, points: int, offset: int = 0) -> dict[str, Any]:
        """Return Matplotlib's arguments for a line through this many points."""
        step = max(1, points // _MARKS)
        marks = {"marker": self.mark, "markevery": (offset % step, step), "markersize": 3.5} if self.mark else {}
        return {"color": self.colour.light, "linestyle": self.dash, **marks}


def look(position: int) -> Look:
    """Return the style of the scheduler at this position of the campaign's list."""
    around = position // len(DASHES)
    mark = MARKERS[(around - 1) % len(MARKERS)] if around else ""
    return Look(SERIES[position % len(SERIES)], MARKERS[position % len(MARKERS)], DASHES[position % len(DASHES)], mark)
