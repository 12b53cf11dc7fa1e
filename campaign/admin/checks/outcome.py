"""The document of `millrace check`."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from inventory.errors import MillraceError
from inventory.plugins import raised_at


class Check(Struct, frozen=True):
    """One thing that a plug-in owes: what was seen when it holds, what is wrong when it does not."""

    name: str
    ok: bool
    message: str


class Checked(Struct, frozen=True):
    """All of them, and whether all hold."""

    ok: bool
    checks: tuple[Check, ...]


def checked(checks: Sequence[Check]) -> Checked:
    """The document for these checks."""
    return Checked(all(check.ok for check in checks), tuple(checks))


def why_not_made(kind: type, make: Callable[[], object]) -> str:
    """Why no instance of a plug-in's class can be made; empty when one can."""
    try:
        make()
    except MillraceError as fault:
        return str(fault)
    except Exception as fault:  # noqa: BLE001 - somebody else's code
        return f"{type(fault).__name__}: {fault} ({raised_at(fault, kind)})"
    return ""
