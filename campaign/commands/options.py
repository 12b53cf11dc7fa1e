"""Common parts of commands of several modules: options, and callbacks for backends."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from campaign.display.terminal import Settings, notice
from controller.host.disk import writing
from inventory.atomic_files import replace_file
from inventory.errors import InputError
from inventory.foreign import printable

if TYPE_CHECKING:
    from controller.nodes.backend import CommandLineCallbacks
    from inventory.ansible_hosts import Hosts


class Seconds(click.FloatRange):
    """Finite number of seconds within a range; click's own range accepts `nan`, and `inf` if it has no maximum."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; fail with a usage error if it is not finite."""
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return seconds


master_option = click.option("--master", metavar="URL", help="Spark master; default local[*], this host's cores.")


def operator_callbacks(settings: Settings) -> "CommandLineCallbacks":
    """Return the callbacks for these global options of the command line."""
    from controller.nodes.backend import CommandLineCallbacks

    def provision(hosts: "Hosts") -> None:
        # Importing it takes as long as a run on processes needs to start.
        from campaign.admin.playbook import Choice, play

        # The campaign has started and locked this cluster itself.
        play("provision", hosts, Choice(only_errors=True, force=True), settings)

    return CommandLineCallbacks(provision, settings.progress, notice)


run_argument = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
run_option = click.option("--run", metavar="NAME", help="Run of the campaign in DIR, if it has several.")

output_option = click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Output file, replaced once it is complete; default: standard output.",
)


def output_file(path: Path, option: str) -> Path:
    """Return the file that an option names; of a link the file that it points to, so that the link stays.

    Raises:
        InputError: it is a folder, a device or a pipe, in whose place no file may be put.
    """
    if path.exists() and not path.is_file():
        raise InputError(f"{option} {printable(path)}: is there already, and no plain file")
    return path.resolve()


def write_document(value: Any, output: Path | None) -> None:
    """Write a document as JSON to a file, or to standard output.

    Raises:
        InputError: the folder of the file does not exist.
        DiskFullError, UnfitError: the file cannot be written.
    """
    from inventory.documents import dump_json

    text = dump_json(value)
    if output is None:
        click.echo(text, nl=False)
        return
    if not output.parent.is_dir():
        raise InputError(f"{output}: there is no folder {output.parent}")
    if output.exists() and not output.is_file():
        # A pipe or a device takes the text itself; a file in its place would break it for all programs.
        with writing(output.parent):
            output.write_text(text, encoding="utf-8")
        return
    with writing(output.parent):
        replace_file(output_file(output, "--output"), text.encode())
