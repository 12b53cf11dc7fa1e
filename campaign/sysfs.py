"""`--sysfs ROOT`: commands about the hardware take a folder for `/`."""

from pathlib import Path

import click

from agents.power.host import ROOT_VARIABLE, MeteredHost
from inventory.errors import InputError

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
