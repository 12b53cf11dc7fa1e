"""Batches of iproute2 commands, each batch in one process."""

import subprocess
from collections.abc import Iterable

from inventory.errors import RunError, UnfitError

_PATIENCE_S = 30


def ip(commands: Iterable[str], namespace: str | None = None) -> None:
    """Run `ip` commands in the network namespace `namespace`; stop at the first failure.

    Raises:
        UnfitError: `ip` is not installed or not permitted.
        RunError: a command failed; the message contains the command and the kernel's reply.
    """
    _batch("ip", list(commands), namespace)


def tc(commands: Iterable[str], namespace: str | None = None) -> None:
    """Run `tc` commands; see `ip`."""
    _batch("tc", list(commands), namespace)


def _batch(program: str, commands: list[str], namespace: str | None) -> None:
    where = ["-n", namespace] if namespace else []
    try:
        done = subprocess.run(
            [program, *where, "-batch", "-"],
            input="\n".join(commands) + "\n",
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE_S,
        )
    except FileNotFoundError:
        raise UnfitError(f"there is no {program!r} on this host (package iproute2)") from None
    except subprocess.TimeoutExpired:
        raise RunError(f"{program}: no answer within {_PATIENCE_S} s") from None
    if done.returncode == 0:
        return
    said = [line for line in done.stderr.splitlines() if line.strip()]
    failed = next((line for line in said if line.startswith("Command failed")), "")
    number = failed.rpartition(":")[2]
    command = commands[int(number) - 1] if number.isdigit() and 0 < int(number) <= len(commands) else ""
    answer = "; ".join(line for line in said if line is not failed) or f"status {done.returncode}"
    words = " ".join(filter(None, [program, *where, command]))
    kind = UnfitError if "Operation not permitted" in answer or "Permission denied" in answer else RunError
    raise kind(f"{words}: {answer}")
