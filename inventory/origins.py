"""Origin of a variable of an Ansible inventory: file and line, for messages.

Ansible does not report it, so the files are searched in order of precedence: the host's own variables, then those of
its groups. Variables found in no file (scripts, plug-ins) are attributed to the inventory as a whole.
"""

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from inventory.ansible_listing import FACTS, Listing
from inventory.parsing import Steps, lines_of

_NAMES = ("", ".yml", ".yaml", ".json")
_NO_INVENTORY = {"host_vars", "group_vars", FACTS}


class Origins:
    """Files of one inventory."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing

    def where(self, host: str, variable: str) -> str:
        """Return `file:line` of the effective value for `host`, else of the host, else the inventory."""
        for place in (*self._set(host, variable), *self._mentioned(variable), *self._mentioned(host)):
            return place
        return str(self._listing.path)

    def _set(self, host: str, variable: str) -> Iterator[str]:
        groups = self._listing.groups(host)
        yield from self._in_folder("host_vars", host, variable)
        yield from self._in_inventory((host, variable))
        for group in groups:
            yield from self._in_folder("group_vars", group, variable)
        for group in groups:
            yield from self._in_inventory((group, "vars", variable))

    def _in_folder(self, kind: str, name: str, variable: str) -> Iterator[str]:
        for suffix in _NAMES:
            path = self._listing.folder / kind / f"{name}{suffix}"
            files = sorted(path.rglob("*")) if path.is_dir() else [path]
            for file in files:
                line = _lines(file).get((variable,))
                if line is not None:
                    yield f"{file}:{line}"

    def _in_inventory(self, ending: Steps) -> Iterator[str]:
        for file, lines in self._sources.items():
            for steps, line in lines.items():
                if steps[-len(ending) :] == ending:
                    yield f"{file}:{line}"

    def _mentioned(self, word: str) -> Iterator[str]:
        """Yield lines that contain the word, for inventories that are not YAML."""
        pattern = re.compile(rf"(?<![\w.-]){re.escape(word)}(?![\w.-])")
        for file in self._sources:
            for number, line in enumerate(_text(file).splitlines(), 1):
                if pattern.search(line):
                    yield f"{file}:{number}"

    @cached_property
    def _sources(self) -> dict[Path, dict[Steps, int]]:
        """Files of the inventory, with the lines of their values."""
        path = self._listing.path
        files = [path]
        if path.is_dir():
            inside = (file for file in sorted(path.rglob("*")) if file.is_file())
            files = [file for file in inside if not _NO_INVENTORY & set(file.relative_to(path).parts)]
        return {file: _lines(file) for file in files}


def _lines(file: Path) -> dict[Steps, int]:
    text = _text(file)
    return lines_of(text, str(file)) if text else {}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
