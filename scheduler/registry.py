"""Schedulers by name: found by entry point, created from checked parameters, wrapped to check their plans."""

from collections.abc import Sequence

from inventory.documents import Document, Steps
from inventory.errors import UnfitError
from inventory.params import parameters
from inventory.plugins import load_plugin, plugins
from scheduler.problem import Scheduler
from scheduler.validation import Checked

GROUP = "millrace.schedulers"


def scheduler_names() -> Sequence[str]:
    """Return the names of all installed schedulers, ascending."""
    return list(plugins(GROUP))


def scheduler_class(name: str) -> type[Scheduler]:
    """Return the class registered as `name`.

    Raises:
        InputError: no such scheduler; the message names the nearest one.
        UnfitError: it cannot be loaded, or is not a scheduler.
    """
    found = load_plugin(GROUP, name)
    missing = [part for part in ("name", "paper", "needs", "Params", "place") if not hasattr(found, part)]
    if missing:
        raise UnfitError(f"the scheduler {name!r} ({found!r}) has no {', '.join(missing)}")
    if found.name != name:
        raise UnfitError(f"the scheduler {name!r} ({found!r}) calls itself {found.name!r}")
    kind: type[Scheduler] = found
    return kind


def make_scheduler(name: str, *sources: tuple[Document, Steps]) -> Checked:
    """Return the scheduler `name` with parameters from the sources; later sources take precedence.

    Raises:
        InputError: no such scheduler, an unknown parameter or a value that is not allowed.
        UnfitError: the scheduler cannot be loaded.
    """
    kind = scheduler_class(name)
    return Checked(kind, parameters(kind.Params, *sources), *sources)
