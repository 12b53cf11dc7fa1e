"""Colours of figures and pictures, in a light and a dark theme."""

from dataclasses import dataclass


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
