"""Global options of the command line, and messages that depend on them."""

import click

from inventory.foreign import printable


class Settings:
    """Global options, which commands get with `@click.pass_obj`."""

    def __init__(self, debug: bool = False, quiet: bool = False, color: bool = True) -> None:
        self.debug, self.quiet, self.color = debug, quiet, color

    def progress(self, line: str) -> None:
        """Print a line of progress on standard error, unless `--quiet` was given."""
        if not self.quiet:
            show(line, error=True)


def show(line: str, *, error: bool = False) -> None:
    """Print one line on standard output, or on standard error."""
    click.echo(printable(line), err=error)


def notice(line: str) -> None:
    """Print a message for the operator on standard error, whatever the options."""
    show(f"millrace: {line}", error=True)
