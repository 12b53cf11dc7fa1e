"""A plug-in tried in a process of its own, which is ended when a single call takes too long.

The process writes one JSON document per line. Two processes with different hash seeds show what depends on the order
of sets or on `hash()`.
"""

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

from inventory.errors import RunError

CALL_S = 10.0
"""A plug-in may take so long for one call."""

START_S = 120.0
"""So long until a process has loaded everything, between its calls, and for what is done once in a run."""

MOST_SAID = 2000
"""Characters of what a process has left on standard error."""


class Speaker:
    """The tried process's side: says what it does and what it finds."""

    def __init__(self, target: IO[str]) -> None:
        self._target = target

    @contextmanager
    def call(self, what: str, at_leisure: bool = False) -> Iterator[None]:
        """Around a call of the plug-in's code, which may take `CALL_S`, or `START_S` at leisure."""
        self._say(begins=what, at_leisure=at_leisure)
        begun = time.perf_counter()
        try:
            yield
        except Exception:
            self._say(ends=what, seconds=time.perf_counter() - begun, at_leisure=at_leisure)
            raise
        self._say(ends=what, seconds=time.perf_counter() - begun, at_leisure=at_leisure)

    def answer(self, label: str, text: str) -> None:
        """What was answered; the same in every process."""
        self._say(answer=label, text=text)

    def fault(self, check: str, message: str) -> None:
        """Something is wrong."""
        self._say(fault=check, message=message)

    def note(self, check: str, message: str) -> None:
        """What a check that holds is based on."""
        self._say(note=check, message=message)

    def over(self) -> None:
        """All has been tried."""
        self._say(over=True)

    def _say(self, **document: Any) -> None:
        print(json.dumps(document), file=self._target, flush=True)


@dataclass
class Trial:
    """What a process has said.

    Attributes:
        answers: label -> answer.
        faults: check -> what is wrong, in order.
        notes: check -> what it is based on.
        longest: seconds of the longest call, and what it was.
        calling: the call that took too long and was ended; empty when none did.
    """

    answers: dict[str, str] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    longest: tuple[float, str] = (0.0, "")
    calling: str = ""

    def fault_of(self, check: str) -> str:
        """The first thing that is wrong, and how many more there are; empty when nothing is."""
        found = self.faults.get(check, [])
        if not found:
            return ""
        return found[0] + (f" (and {len(found) - 1} more)" if len(found) > 1 else "")


def tried(arguments: Sequence[str], hash_seed: int) -> Trial:
    """Have a plug-in tried by `python -m campaign.admin.checks.process ARGUMENTS`.

    Raises:
        RunError: the process died.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "campaign.admin.checks.process", *arguments],
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        try:
            return _heard(process, log)
        finally:
            process.kill()
            process.communicate()


def _heard(process: "subprocess.Popen[bytes]", log: IO[str]) -> Trial:
    trial = Trial()
    lines = _Lines(process)
    seconds = START_S
    while (line := lines.next(seconds)) is not None:
        seconds = START_S
        match line:
            case {"begins": what, "at_leisure": at_leisure}:
                trial.calling = what
                seconds = START_S if at_leisure else CALL_S
            case {"ends": what, "seconds": took, "at_leisure": at_leisure}:
                trial.calling = ""
                if not at_leisure:
                    trial.longest = max(trial.longest, (took, what))
            case {"answer": label, "text": text}:
                trial.answers[label] = text
            case {"fault": check, "message": message}:
                trial.faults.setdefault(check, []).append(message)
            case {"note": check, "message": message}:
                trial.notes[check] = message
            case {"over": _}:
                return trial
    where = f" in {trial.calling}" if trial.calling else ""
    if not lines.ended:
        if trial.calling:
            return trial
        raise RunError(f"the process that tries it has said nothing for {START_S:g} s")
    process.wait()
    log.seek(0)
    said = log.read()[-MOST_SAID:].strip().splitlines()
    raise RunError(f"the process that tries it ended with status {process.returncode}{where}: {' '.join(said[-1:])}")


class _Lines:
    """What the process says, document by document.

    Attributes:
        ended: whether it will say nothing any more.
    """

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None  # noqa: S101 - it was asked for
        self._source = process.stdout
        self._buffer = b""
        self.ended = False

    def next(self, seconds: float) -> dict[str, Any] | None:
        """The next document; None when none comes within `seconds`, or ever."""
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._source, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                received = os.read(self._source.fileno(), 1 << 16)
                if not received:
                    self.ended = True
                    return None
                self._buffer += received
        line, _, self._buffer = self._buffer.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found
