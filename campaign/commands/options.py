"""Option types that several commands share."""

import math
from pathlib import Path
from typing import Any

import click

from agents.power.host import ROOT_VARIABLE, MeteredHost
from inventory.errors import InputError


class Seconds(click.FloatRange):
    """Finite number of seconds within a range; click's own range accepts `nan`, and `inf` if it has no maximum."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; fail with a usage error if it is not finite."""
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
    help=f"Folder to use as /, with sys and proc in it; the environment variable {ROOT_VARIABLE} does the same.",
)


def metered_host(root: str) -> MeteredHost:
    """Return the host whose files are below `root`.

    Raises:
        InputError: there is no such folder.
    """
    if not Path(root).is_dir():
        raise InputError(f"--sysfs {root}: there is no such folder")
    return MeteredHost(Path(root).resolve())
