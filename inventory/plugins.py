"""Finding plug-ins by entry point; the built-in ones are registered the same way as anybody else's."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from traceback import walk_tb
from typing import Any

from inventory.errors import InputError, UnfitError, nearest


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
    """Import and return what is registered as `name`.

    Raises:
        InputError: no such name; the message gives the nearest one.
        UnfitError: the plug-in is registered but cannot be imported.
    """
    kind = group.rpartition(".")[2].removesuffix("s")
    entry = plugins(group).get(name)
    if entry is None:
        raise InputError(f"unknown {kind} {name!r}{nearest(name, plugins(group))}")
    try:
        return entry.load()
    except Exception as fault:
        raise UnfitError(f"the {kind} {name!r} ({entry.value}) cannot be loaded: {fault}") from fault


def raised_at(fault: BaseException, kind: type) -> str:
    """Return `file:line` where a plug-in's own code has led to `fault`, which may have arisen in a library below it.

    Args:
        fault: was raised, and caught.
        kind: the plug-in's class. Its package counts before those of its base classes; where no code of theirs is in
            the traceback, its innermost line is returned.
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
