"""The global options of the command line, and messages that follow them."""

import click

from inventory.foreign import printable


class Settings:
    """Global options, which commands get with `@click.pass_obj`."""

    def __init__(self, debug: bool = False, quiet: bool = False, color: bool = True) -> None:
        self.debug, self.quiet, self.color = debug, quiet, color

    def progress(self, line: str) -> None:
        """Show on standard error how far something is, unless `--quiet` was given."""
        if not self.quiet:
            show(line, error=True)


def show(line: str, *, error: bool = False) -> None:
    """Print one line on standard output, or on standard error."""
    click.echo(printable(line), err=error)


def notice(line: str) -> None:
    """Print on standard error what the operator must know, whatever the options."""
    show(f"millrace: {line}", error=True)
