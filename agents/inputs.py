"""Prepared inputs: a node uses only copies whose checksum is the controller's."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

from agents.folders import NodeFolder
from agents.protocol import InputFile
from inventory.errors import RunError

_PIECE = 1024 * 1024


def check_inputs(inputs: Iterable[InputFile], folder: NodeFolder, go_on: Callable[[], bool]) -> None:
    """Compare the copies in the node's folder with their checksums; stop early, without an answer, unless `go_on()`.

    Raises:
        RunError: a copy is missing, cannot be read or differs.
    """
    for entry in inputs:
        path = folder.input(entry.file)
        try:
            found = _sha256(path, go_on)
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


def _sha256(path: Path, go_on: Callable[[], bool]) -> str | None:
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while piece := source.read(_PIECE):
            if not go_on():
                return None
            digest.update(piece)
    return digest.hexdigest()
