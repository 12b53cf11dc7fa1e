"""Escaping of text from other sources before it is shown on a terminal, in a log, or in a document.

A name, a path, a reason or the message of an operator may contain terminal escape sequences, line breaks, marks that
change the direction of writing, or megabytes of text. Code that shows such text passes it through `printable`.
"""

import unicodedata
from typing import Any

MOST = 2000
"""Maximum number of characters of such text shown."""

MOST_LINES = 1000
"""Maximum number of lines of a message shown."""

MOST_DEEP = 100
"""Maximum nesting of a document shown."""

_LEFT_OUT = " [...] "
_TAIL = MOST // 4


def printable(text: object) -> str:
    r"""Return `text` as one line of at most `MOST` characters, control characters escaped as Python escapes them.

    All invisible characters except blanks are escaped. The middle of a long text is left out, since the start and the
    end usually matter most. Printable text is unchanged.

    >>> printable("a\x1b]0;title\x07\nrun 1/1 ok")
    'a\\x1b]0;title\\x07\\nrun 1/1 ok'
    >>> printable("Zürich, 3 µs") + printable(7)
    'Zürich, 3 µs7'
    """
    return _cut(escaped(_cut(str(text))))


def escaped(text: str) -> str:
    """Return `text` with its control characters escaped, at any length, for example in lists of names."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def printable_lines(text: object) -> str:
    r"""Return one of Millrace's own messages, possibly of several lines, with each line made printable.

    All lines but the first are indented, so that lines inside foreign text cannot be mistaken for Millrace's own.

    >>> print(printable_lines("no such file: a\nrun 1/1 ok"))
    no such file: a
      run 1/1 ok
    """
    # Not splitlines, which also splits at characters that are no line breaks on a terminal.
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
