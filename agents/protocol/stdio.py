"""Standard input and output belong to the protocol; what is printed goes to a log."""

import os
import sys
from pathlib import Path


def keep_protocol() -> tuple[int, int]:
    """Take the protocol's descriptors away from file descriptors 0 and 1; return (input, output).

    Afterwards whatever is printed, by Python or by a C library, goes to standard error; reading standard input finds
    its end. The returned descriptors are not inherited by children.
    """
    taken, given = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.flush()
    os.dup2(2, 1)
    return taken, given


def log_to(path: Path) -> None:
    """Send what is printed from now on (descriptors 1 and 2) to the end of a file.

    Raises:
        OSError: the file cannot be opened.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
