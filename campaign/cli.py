"""`millrace`: the command line.

Every command lives in a file of its own under `campaign.commands` and is imported only when it is asked for, so
that `place` answers at once although `report` needs Spark.
"""

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from inventory.errors import MillraceError, nearest
from inventory.foreign import printable_lines

INTERRUPTED = 130
INPUT_WRONG = 2

WORLD_WRITABLE = 0o002
"""The permission that nothing gets that a command makes, whatever the user's umask allows."""


def _names() -> list[str]:
    folder = Path(__file__).parent / "commands"
    return sorted(p.stem.replace("_", "-") for p in folder.glob("*.py") if not p.stem.startswith("__"))


class _Commands(click.Group):
    """Finds commands by file name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return _names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _names():
            return None
        module = import_module(f"campaign.commands.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in _names():
            raise click.UsageError(f"unknown command {args[0]!r}{nearest(args[0], _names())}", ctx)
        return super().resolve_command(ctx, args)


class Settings:
    """The global options, for commands that ask with `@click.pass_obj`."""

    def __init__(self, debug: bool, quiet: bool, color: bool) -> None:
        self.debug, self.quiet, self.color = debug, quiet, color


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="millrace")
@click.option("--debug", is_flag=True, help="Show a traceback when something goes wrong.")
@click.option("--quiet", is_flag=True, help="No progress, only results and errors.")
@click.option("--no-color", is_flag=True, help="No colours, whatever the terminal says.")
@click.pass_context
def millrace(ctx: click.Context, debug: bool, quiet: bool, no_color: bool) -> None:
    """Race task placements for stream processing on real Linux machines and meter what they cost.

    Example: millrace run demo
    """
    ctx.obj = Settings(debug, quiet, not no_color)
    if no_color:
        ctx.color = False


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status (0, 1, 2, 3 or 130)."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(run(arguments))


def run(arguments: Sequence[str]) -> int:
    """Run the command line; return its exit status."""
    os.umask(os.umask(0o077) | WORLD_WRITABLE)
    try:
        outcome = millrace.main(list(arguments), prog_name="millrace", standalone_mode=False)
    except click.ClickException as fault:
        shown = io.StringIO()
        fault.show(shown)
        usage, error, message = shown.getvalue().rstrip("\n").partition("Error: ")
        click.echo(f"{usage}{error}{printable_lines(message)}", err=True)
        return INPUT_WRONG
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except MillraceError as fault:
        if "--debug" in arguments:
            raise
        click.echo(printable_lines(f"millrace: {fault}"), err=True)
        return fault.exit_status
    except BrokenPipeError:
        # The reader of our output (`| head`) has gone; nothing more can be said.
        sys.stderr.close()
        return 0
    except Exception as fault:
        if "--debug" in arguments:
            raise
        said = f"millrace: internal error: {type(fault).__name__}: {fault} (--debug shows where)"
        click.echo(printable_lines(said), err=True)
        return 1
    return outcome if isinstance(outcome, int) else 0
