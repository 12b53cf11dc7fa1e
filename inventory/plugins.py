"""Plug-ins found by entry point; built-in ones are registered in the same way."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from traceback import walk_tb
from typing import Any

from inventory.errors import InputError, UnfitError, nearest

OWN = frozenset(("agents", "analysis", "campaign", "controller", "inventory", "millrace", "scheduler", "workloads"))
"""Names of Millrace's own top-level packages, which no other distribution may use."""


@cache
def plugins(group: str) -> Mapping[str, EntryPoint]:
    """Return entry points of `group` by name, in name order; nothing is imported yet.

    Raises:
        UnfitError: two installed packages register the same name.
    """
    found: dict[str, EntryPoint] = {}
    for entry in sorted(entry_points(group=group), key=lambda e: (e.name, e.value)):
        other = found.get(entry.name)
        if other is not None and other.value != entry.value:
            raise UnfitError(f"two packages register {entry.name!r} in {group}: {other.value} and {entry.value}")
        found[entry.name] = entry
    return found


def load_plugin(group: str, name: str) -> Any:
    """Import and return the plug-in registered as `name`.

    Raises:
        InputError: no such name; the message gives the nearest one.
        UnfitError: the plug-in is registered but cannot be imported, or its distribution has a package that is named
            like one of Millrace's own.
    """
    kind = group.rpartition(".")[2].removesuffix("s")
    entry = plugins(group).get(name)
    if entry is None:
        raise InputError(f"unknown {kind} {name!r}{nearest(name, plugins(group))}")
    taken = _own_names_in(entry)
    if taken:
        raise UnfitError(
            f"the {kind} {name!r} ({entry.value}) cannot be loaded: its distribution has a top-level package "
            f"{taken[0]!r}, the name of one of Millrace's own; rename that package"
        )
    try:
        return entry.load()
    except Exception as fault:
        raise UnfitError(f"the {kind} {name!r} ({entry.value}) cannot be loaded: {fault}") from fault


def _own_names_in(entry: EntryPoint) -> list[str]:
    """Return Millrace's own package names that the plug-in's distribution uses for packages of its own."""
    distribution = entry.dist
    if distribution is None or distribution.metadata["Name"] == "millrace":
        return []
    files = distribution.files or ()  # of an editable installation, the entry point alone gives its package
    return sorted({_package(entry.module), *(file.parts[0].removesuffix(".py") for file in files)} & OWN)


def raised_at(fault: BaseException, kind: type) -> str:
    """Return `file:line` in a plug-in's own code that led to `fault`, which may be raised in a library.

    Args:
        fault: the exception caught.
        kind: the plug-in's class. Its package is preferred to those of its base classes; if the traceback has no code
            of these, the innermost line is returned.
    """
    lines = [
        (_package(frame.f_globals.get("__name__", "")), frame, line) for frame, line in walk_tb(fault.__traceback__)
    ]
    for owner in dict.fromkeys(_package(base.__module__) for base in kind.__mro__):
        mine = [(frame, line) for package, frame, line in lines if package == owner]
        if mine:
            frame, line = mine[-1]
            break
    else:
        _, frame, line = lines[-1]
    return f"{frame.f_code.co_filename}:{line}"


def _package(module: str) -> str:
    return module.partition(".")[0]
