"""File change notification (inotify(7)), which Python's library lacks."""

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

_WRITTEN, _MOVED_IN, _ONLY_FOLDERS = 0x8, 0x80, 0x01000000
_HEADER = struct.Struct("iIII")
_BUFFER = 1 << 16
_OVERFLOWN = -1

_libc = ctypes.CDLL(None, use_errno=True)


class Watch:
    """Watch on folders, each with an owner; reports the owners whose files were written or replaced."""

    def __init__(self) -> None:
        self._descriptor = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify")
        self._owners: dict[int, str] = {}

    def fileno(self) -> int:
        """Return the descriptor, which is readable when there are events."""
        return self._descriptor

    def add(self, owner: str, folders: Iterable[Path]) -> None:
        """Watch more folders for `owner`.

        Raises:
            OSError: a folder does not exist, or the user's limit of watches is reached.
        """
        for folder in folders:
            mask = _WRITTEN | _MOVED_IN | _ONLY_FOLDERS
            number = _checked(_libc.inotify_add_watch(self._descriptor, os.fsencode(folder), mask), f"watch {folder}")
            self._owners[number] = owner

    def written(self) -> set[str]:
        """Return the owners of folders in which files were written since the last call."""
        found: set[str] = set()
        while True:
            try:
                events = os.read(self._descriptor, _BUFFER)
            except BlockingIOError:
                return found
            at = 0
            while at < len(events):
                number, _, _, length = _HEADER.unpack_from(events, at)
                at += _HEADER.size + length
                if number == _OVERFLOWN:
                    found |= set(self._owners.values())
                elif number in self._owners:
                    found.add(self._owners[number])

    def close(self) -> None:
        """Remove all watches."""
        os.close(self._descriptor)


def _checked(answer: int, what: str) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return answer
