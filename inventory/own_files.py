"""Files that a command may replace: only those that it made earlier, wherever the user wants its output to be."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from inventory.errors import InputError
from inventory.foreign import printable

_MARKED_BYTES = 4096


def check_file(path: Path, mark: str, option: str) -> None:
    """Check that a command may write `path`, whose folder belongs to the user.

    Args:
        path: the file.
        mark: text near the begin of all such files that the command writes.
        option: the option that names the file or its folder.

    Raises:
        InputError: there is something that the command did not write.
    """
    if not os.path.lexists(path):
        return
    if path.is_file() and not path.is_symlink():
        with path.open("rb") as file:
            if mark.encode() in file.read(_MARKED_BYTES):
                return
    raise InputError(
        f"{option} {printable(path)} is there already, and was not made by this command; move it away, or give "
        "another folder"
    )


@dataclass(frozen=True)
class OutputFolder:
    """A folder that a command makes as a whole.

    Attributes:
        what: what anything else is: `no report`.
        files: regular expression of the paths of its files.
        listing: file in it with the paths of all others, one per line; empty if no file of a user's has such a name.
    """

    what: str
    files: str
    listing: str = ""

    def check(self, target: Path, option: str = "") -> None:
        """Check that `target` may be replaced: it does not exist, is empty, or was made by this command.

        Args:
            target: the folder.
            option: the option that names it, with a blank, for the message.

        Raises:
            InputError: it holds something else.
        """
        if not os.path.lexists(target):
            return
        foreign = self._foreign(target)
        if foreign is None:
            return
        which = "" if foreign == target else f": {printable(foreign.relative_to(target))} is no part of one"
        advice = "move it away, or give a new folder" if option else "move it away"
        raise InputError(f"{option}{printable(target)} is there already, and {self.what}{which}; {advice}")

    def list_files(self, folder: Path) -> None:
        """Write the listing of a folder whose other files are complete."""
        paths = [path.relative_to(folder).as_posix() for path in _files(folder)]
        (folder / self.listing).write_text("".join(f"{path}\n" for path in sorted(paths)), encoding="utf-8")

    def _foreign(self, target: Path) -> Path | None:
        """Return what is not an output of the command: a file in the folder, or what is there in place of one."""
        if not target.is_dir() or target.is_symlink():
            return target
        listed: set[str] | None = None
        if self.listing:
            with suppress(OSError):
                listed = {self.listing, *(target / self.listing).read_text(encoding="utf-8").splitlines()}
        for path in _files(target):
            name = path.relative_to(target).as_posix()
            # A folder of an earlier version has no listing.
            if name not in listed if listed is not None else not re.fullmatch(self.files, name):
                return path
        return None


def _files(folder: Path) -> Iterator[Path]:
    """Yield everything below a folder but folders."""
    for place, folders, files in os.walk(folder):
        for name in files + [each for each in folders if (Path(place) / each).is_symlink()]:
            yield Path(place) / name
