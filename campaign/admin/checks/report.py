"""The document of `millrace check`."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from inventory.errors import MillraceError
from inventory.plugins import raised_at


class Check(Struct, frozen=True):
    """Result of one check; the message describes what was seen, or what is wrong."""

    name: str
    ok: bool
    message: str


class CheckReport(Struct, frozen=True):
    """All checks, and whether all of them succeeded."""

    ok: bool
    checks: tuple[Check, ...]


def report_of(checks: Sequence[Check]) -> CheckReport:
    """Return the document for these checks."""
    return CheckReport(all(check.ok for check in checks), tuple(checks))


def construction_error(kind: type, make: Callable[[], object]) -> str:
    """Return why no instance of a plug-in's class can be made, or an empty string."""
    try:
        make()
    except MillraceError as fault:
        return str(fault)
    except Exception as fault:  # noqa: BLE001 - somebody else's code
        return f"{type(fault).__name__}: {fault} ({raised_at(fault, kind)})"
    return ""
