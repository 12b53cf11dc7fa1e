"""Finding plug-ins by entry point; the built-in ones are registered the same way as anybody else's."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from inventory.errors import InputError, UnfitError, nearest


@cache
def plugins(group: str) -> Mapping[str, EntryPoint]:
    """Entry points of `group` by name, in name order; nothing is imported yet.

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
