"""Prepared inputs: a node only uses copies whose checksum matches the controller's."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

from agents.protocol import InputFile
from agents.protocol.node_folders import NodeFolder
from inventory.errors import RunError

_PIECE = 1024 * 1024

_Version = tuple[int, int, int, int]
"""Attributes that change when a file is written or replaced: inode, size, times of modification and change."""


class InputFiles:
    """The inputs of a run on this node; a copy is read once, and again only after the file has changed."""

    def __init__(self, folder: NodeFolder) -> None:
        self._folder = folder
        self._found: dict[Path, tuple[_Version, str]] = {}

    def check(self, inputs: Iterable[InputFile], go_on: Callable[[], bool]) -> None:
        """Compare copies with their checksums; return early, without a result, once `go_on()` is false.

        Raises:
            RunError: a copy is missing, cannot be read or differs.
        """
        for entry in inputs:
            path = self._folder.input(entry.file)
            try:
                found = self._sha256(path, go_on)
            except FileNotFoundError:
                raise RunError(f"the input {entry.name!r} is missing: {path}") from None
            except OSError as fault:
                raise RunError(f"the input {entry.name!r} cannot be read: {path}: {fault.strerror}") from None
            if found is None:
                return
            if found != entry.sha256:
                raise RunError(
                    f"the input {entry.name!r} differs from the controller's: {path} has SHA-256 {found}, "
                    f"expected {entry.sha256}"
                )

    def _sha256(self, path: Path, go_on: Callable[[], bool]) -> str | None:
        state = path.stat()
        version = (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
        known, found = self._found.get(path, (None, ""))
        if known == version:
            return found
        digest = hashlib.sha256()
        with path.open("rb") as source:
            while piece := source.read(_PIECE):
                if not go_on():
                    return None
                digest.update(piece)
        self._found[path] = (version, digest.hexdigest())
        return digest.hexdigest()
