"""Seconds on the command line."""

import math
from pathlib import Path
from typing import Any

import click

from agents.power.host import ROOT_VARIABLE, MeteredHost
from inventory.errors import InputError


class Seconds(click.FloatRange):
    """A finite number of seconds within a range; click's own range lets `nan` pass, and `inf` where it is open."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, or a usage error."""
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return seconds


sysfs_option = click.option(
    "--sysfs",
    "root",
    metavar="ROOT",
    default="/",
    envvar=ROOT_VARIABLE,
    help=f"A folder that stands for /, with its sys and proc; {ROOT_VARIABLE} in the environment says the same.",
)


def metered_host(root: str) -> MeteredHost:
    """The host below ROOT.

    Raises:
        InputError: there is no such folder.
    """
    if not Path(root).is_dir():
        raise InputError(f"--sysfs {root}: there is no such folder")
    return MeteredHost(Path(root).resolve())
