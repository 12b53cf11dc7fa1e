"""Processes of an engine as children of a program of ours, which starts them, names those that end, and keeps logs."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from engines.job import MASTER

MOST_LOG_BYTES = 10_000_000
"""Longest log that is kept."""


class EngineProcess(Struct, frozen=True):
    """A process of an engine.

    Attributes:
        name: what it is called in messages.
        command: program and arguments.
        log: file of its output.
        environment: what it has in its environment beside that of the program that starts it.
        node: where it runs.
    """

    name: str
    command: tuple[str, ...]
    log: str
    environment: dict[str, str] = {}
    node: str = MASTER


def start_process(process: EngineProcess, before: Callable[[], None] | None = None) -> int:
    """Start a process in a session of its own and return its id; `before` is called in it first.

    Raises:
        OSError: it cannot be started.
    """
    log = Path(process.log)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        started = subprocess.Popen(
            process.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **process.environment},
            start_new_session=True,
            preexec_fn=before,
        )
    # Callers wait for any child; Python itself must not wait for this one when it starts another.
    started.returncode = 0
    return started.pid


def how_ended(name: str, status: int) -> str:
    """Return that a process has ended, and how; a negative status is a signal."""
    return f"{name} ended by signal {-status}" if status < 0 else f"{name} ended with status {status}"


def copy_logs(source: Path, target: Path) -> None:
    """Copy the ends of all logs of an engine; parts of their paths become parts of their names."""
    target.mkdir(parents=True, exist_ok=True)
    for log in sorted(source.rglob("*.log*")):
        if log.is_file():
            (target / "-".join(log.relative_to(source).parts)).write_bytes(end_of(log, MOST_LOG_BYTES))


def end_of(log: Path, most: int) -> bytes:
    """Return the end of a log."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - most))
        return file.read()
