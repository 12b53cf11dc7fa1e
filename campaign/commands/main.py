"""`millrace`: the command line.

The module of a command is imported when the command is called, and it imports what is heavy inside its functions:
`place` does not wait for the modules of `report`.
"""

import os
from collections.abc import Sequence
from copy import copy
from importlib import import_module
from typing import Any

import click

from campaign.display.terminal import Settings, notice
from controller.host.signals import INTERRUPTED, loading
from inventory.errors import MillraceError, nearest
from inventory.foreign import printable_lines
from scheduler.toolkit.slow_notice import showing_slow_schedulers

INPUT_WRONG = 2

WORLD_WRITABLE = 0o002
"""Permission that is removed from every file a command creates, whatever the user's umask."""


MODULES = {
    "authoring": ("check", "list", "schema"),
    "bundles": ("bundle", "verify-bundle"),
    "claims": ("claims",),
    "data_sets": ("generate", "pipeline"),
    "engines": ("engine", "load"),
    "hosts": ("calibrate", "exec", "provision", "restore", "verify"),
    "machine": ("clean", "doctor", "meter", "record-sysfs"),
    "placements": ("place", "revise"),
    "results": ("compare", "observe", "report", "results", "top", "traffic"),
    "run": ("run",),
}
"""Module in `campaign.commands` -> its commands; the function of `record-sysfs` is `record_sysfs_command`."""

MODULE_OF = {name: module for module, names in MODULES.items() for name in names}


def _set(ctx: click.Context, parameter: click.Parameter, given: bool) -> None:
    if not given:
        return
    settings = ctx.ensure_object(Settings)
    match parameter.name:
        case "debug":
            settings.debug = True
        case "quiet":
            settings.quiet = True
        case "no_color":
            settings.color = ctx.color = False


GLOBAL = [
    click.Option([name], is_flag=True, expose_value=False, callback=_set, help=words)
    for name, words in (
        ("--debug", "Show a traceback on errors."),
        ("--quiet", "Print results and errors only, no progress."),
        ("--no-color", "Print without colours."),
    )
]
"""Options that are accepted before and after the command."""


def _hidden(options: Sequence[click.Option]) -> list[click.Parameter]:
    """Return hidden copies of the options for a command, so that its help does not repeat them."""
    hidden: list[click.Parameter] = []
    for option in options:
        again = copy(option)
        again.hidden = True
        hidden.append(again)
    return hidden


class _Commands(click.Group):
    """Group that imports the module of a command when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(MODULE_OF)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in MODULE_OF:
            return None
        with loading():
            module = import_module(f"campaign.commands.{MODULE_OF[cmd_name]}")
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        if GLOBAL[0].name not in {parameter.name for parameter in command.params}:
            command.params += _hidden(GLOBAL)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args and not ctx.resilient_parsing and not args[0].startswith("-") and args[0] not in MODULE_OF:
            raise click.UsageError(f"unknown command {args[0]!r}{nearest(args[0], sorted(MODULE_OF))}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}, params=[*GLOBAL]
)
@click.version_option(package_name="millrace")
@click.pass_context
def millrace(ctx: click.Context) -> None:
    """Race task placements for stream processing on real Linux machines and measure their cost.

    Example: millrace run demo
    """
    ctx.ensure_object(Settings)


def run(arguments: Sequence[str]) -> int:
    """Run the command line; return its exit status."""
    os.umask(os.umask(0o077) | WORLD_WRITABLE)
    settings = Settings()
    try:
        with showing_slow_schedulers(notice):
            outcome = millrace.main(list(arguments), prog_name="millrace", standalone_mode=False, obj=settings)
    except click.ClickException as fault:
        fault.message = printable_lines(fault.message)  # type: ignore[misc] # click reads it in `show`
        fault.show()
        return INPUT_WRONG
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except MillraceError as fault:
        if settings.debug:
            raise
        click.echo(printable_lines(f"millrace: {fault}"), err=True)
        return fault.exit_status
    except Exception as fault:
        if settings.debug:
            raise
        message = f"millrace: internal error: {type(fault).__name__}: {fault} (--debug shows where)"
        click.echo(printable_lines(message), err=True)
        return 1
    return outcome if isinstance(outcome, int) else 0
