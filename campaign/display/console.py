"""Consoles of Rich on which printed text cannot control the terminal or set a style."""

from typing import Any

from rich.console import Console
from rich.text import Text

from inventory.foreign import escaped


class _PlainConsole(Console):
    """Console that escapes every plain text, also in tables and titles."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str("\n".join(map(escaped, text.split("\n"))), **options)


def plain_console(color: bool, stderr: bool = False) -> Console:
    """Return a console on standard output or standard error; only `Text` objects keep their styles."""
    return _PlainConsole(stderr=stderr, no_color=not color, highlight=False, markup=False, emoji=False)
