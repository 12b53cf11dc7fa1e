"""What people are shown with Rich: nothing that is shown can steer the terminal or ask for a style."""

from typing import Any

from rich.console import Console
from rich.text import Text

from inventory.foreign import escaped


class _PlainConsole(Console):
    """Takes every plain text, in tables and titles, too, for somebody else's."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str("\n".join(map(escaped, text.split("\n"))), **options)


def plain_console(color: bool, stderr: bool = False) -> Console:
    """Return a console on standard output or standard error; only `Text` has styles, which is taken as it is."""
    return _PlainConsole(stderr=stderr, no_color=not color, highlight=False, markup=False, emoji=False)
