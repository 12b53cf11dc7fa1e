"""Completion of values by the shell, for `shell_complete` of options and arguments.

Only what a name needs is imported, and when it is completed: the shell waits for it.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

AGENDAS = Path(__file__).parents[1] / "agendas"


def complete_schedulers(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the installed schedulers."""
    return _matching(_plugins("scheduler"), incomplete)


def scheduler_lists(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return lists like `even,top-storm`: the last name is completed, from those that are not yet in the list."""
    listed, comma, last = incomplete.rpartition(",")
    names = [name for name in _plugins("scheduler") if name not in listed.split(",")]
    return _matching((f"{listed}{comma}{name}" for name in names if name.startswith(last)), incomplete)


def checked_plugins(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the installed schedulers or workloads, by the argument `kind` before."""
    kind = ctx.params.get("kind")
    return [] if kind is None else _matching(_plugins(kind), incomplete)


def topologies(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the installed workloads, and files."""
    return _or_files(_plugins("workload"), incomplete)


def complete_agendas(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the built-in agendas, and files."""
    names = (path.relative_to(AGENDAS).with_suffix("").as_posix() for path in AGENDAS.rglob("*.yaml"))
    return _or_files(sorted(names), incomplete)


def inventories(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the built-in inventories, and files."""
    from inventory.reading import shipped_inventories

    return _or_files(shipped_inventories(), incomplete)


def _plugins(kind: str) -> Iterable[str]:
    from inventory.errors import MillraceError
    from inventory.plugins import plugins

    with suppress(MillraceError):
        return plugins(f"millrace.{kind}s")
    return ()  # two packages have the same name, which commands report


def _matching(names: Iterable[str], incomplete: str) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _or_files(names: Iterable[str], incomplete: str) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    return [*_matching(names, incomplete), CompletionItem(incomplete, type="file")]
