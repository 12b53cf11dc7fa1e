"""Files that are whole or not there."""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def aside(path: Path) -> Iterator[IO[bytes]]:
    """Write `path` under another name beside it; it gets its own when the block has ended well, else it is removed."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as file:
            yield file
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()
        raise
