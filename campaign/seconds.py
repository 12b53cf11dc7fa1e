"""Seconds on the command line."""

import math
from typing import Any

import click


class Seconds(click.FloatRange):
    """A finite number of seconds within a range; click's own range lets `nan` pass, and `inf` where it is open."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, or a usage error."""
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return seconds
