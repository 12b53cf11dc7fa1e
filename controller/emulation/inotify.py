"""Hearing of writes to files as they happen (inotify(7)), which Python's library lacks."""

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
    """Tells which owners of folders have had a file written, or replaced."""

    def __init__(self) -> None:
        self._descriptor = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify")
        self._owners: dict[int, str] = {}

    def fileno(self) -> int:
        """The descriptor that becomes readable."""
        return self._descriptor

    def add(self, owner: str, folders: Iterable[Path]) -> None:
        """Watch folders for `owner`; one that is watched already stays so.

        Raises:
            OSError: one is not there, or this user may not watch more.
        """
        for folder in folders:
            mask = _WRITTEN | _MOVED_IN | _ONLY_FOLDERS
            number = _checked(_libc.inotify_add_watch(self._descriptor, os.fsencode(folder), mask), f"watch {folder}")
            self._owners[number] = owner

    def written(self) -> set[str]:
        """Owners of folders in which something was written since the last call."""
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
        """Watch nothing any more."""
        os.close(self._descriptor)


def _checked(answer: int, what: str) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return answer
