"""Atomic writing of files."""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def aside(path: Path) -> Iterator[IO[bytes]]:
    """Write `path` under a temporary name; rename it when the block succeeds, otherwise remove it."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as file:
            yield file
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()
        raise
