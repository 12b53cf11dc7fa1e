r"""Text that somebody else wrote, made fit to be shown: on a terminal, in a log, in a document.

A name, a path, a reason or the message of an operator may hold anything: sequences that steer a terminal, line breaks
that make one line look like several, marks that turn the direction of writing, megabytes. Whatever shows such text
passes it through `printable`; nothing of Millrace's own needs more.
"""

import unicodedata
from typing import Any

MOST = 2000
"""Characters of foreign text that are shown."""

MOST_LINES = 1000
"""Lines of a message that are shown."""

MOST_DEEP = 100
"""Deeper nesting of a document is left out."""

_LEFT_OUT = " [...] "
_TAIL = MOST // 4


def printable(text: object) -> str:
    r"""Return `text` as one line of at most `MOST` characters, control characters escaped as Python escapes them.

    Escaped is all that is not visible, blanks excepted; the middle of what is too long is left out, for both ends
    matter: who says something, and where more is to be found. What has been made printable stays as it is.

    >>> printable("a\x1b]0;title\x07\nrun 1/1 ok")
    'a\\x1b]0;title\\x07\\nrun 1/1 ok'
    >>> printable("Zürich, 3 µs") + printable(7)
    'Zürich, 3 µs7'
    """
    return _cut(escaped(_cut(str(text))))


def escaped(text: str) -> str:
    """Return `text` with its control characters escaped, however long it is: for lists of names, and the like."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def printable_lines(text: object) -> str:
    r"""Return a message of Millrace's own, which may have several lines, with each of them printable.

    All but the first are indented, so that none that came in with foreign text passes for one of Millrace's own.

    >>> print(printable_lines("no such file: a\nrun 1/1 ok"))
    no such file: a
      run 1/1 ok
    """
    # Not splitlines: that also splits where no terminal does.
    first, *others = str(text).split("\n", MOST_LINES)
    return "\n".join([printable(first), *(_indented(printable(line)) for line in others)])


def printable_all(value: Any, deep: int = 0) -> Any:
    """Return plain data, as it comes from JSON, with every text in it printable, keys included."""
    match value:
        case str():
            return printable(value)
        case dict() | list() if deep >= MOST_DEEP:
            return _LEFT_OUT.strip()
        case dict():
            return {printable_all(key, deep): printable_all(one, deep + 1) for key, one in value.items()}
        case list():
            return [printable_all(one, deep + 1) for one in value]
    return value


def _cut(said: str) -> str:
    return said if len(said) <= MOST else f"{said[: MOST - len(_LEFT_OUT) - _TAIL]}{_LEFT_OUT}{said[-_TAIL:]}"


def _escaped(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode()


def _indented(line: str) -> str:
    return line if not line or line[0] == " " else f"  {line}"
