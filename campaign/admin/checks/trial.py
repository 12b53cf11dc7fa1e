"""Trial of a plug-in in a process of its own, which is killed if a single call takes too long.

The process writes one JSON document per line. Two processes with different hash seeds reveal dependence on the order
of sets or on `hash()`.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Any

from msgspec import Struct

from inventory.errors import MillraceError, RunError
from inventory.plugins import raised_at


class Check(Struct, frozen=True):
    """Result of one check; the message describes what was seen, or what is wrong."""

    name: str
    ok: bool
    message: str


class CheckReport(Struct, frozen=True):
    """All checks, and whether all of them succeeded."""

    ok: bool
    checks: tuple[Check, ...]


def report_of(checks: Sequence[Check]) -> CheckReport:
    """Return the document for these checks."""
    return CheckReport(all(check.ok for check in checks), tuple(checks))


CALL_S = 10.0
"""Longest time of one call of a plug-in."""

START_S = 120.0
"""Longest time for start-up, between calls, and for calls that a run makes once."""

POLL_S = 0.5
"""Time between two looks whether a silent process still runs."""

MAX_LOG_CHARACTERS = 2000
"""Length of the end of standard error that a message quotes."""


class TrialReporter:
    """Output of the trial's process: calls, answers and faults as JSON lines."""

    def __init__(self, target: IO[str]) -> None:
        self._target = target

    @contextmanager
    def call(self, what: str, at_leisure: bool = False) -> Iterator[None]:
        """Context manager for a call of the plug-in, which may take `CALL_S`, or `START_S` if `at_leisure`."""
        self._write(begins=what, at_leisure=at_leisure)
        begun = time.perf_counter()
        try:
            yield
        except Exception:
            self._write(ends=what, seconds=time.perf_counter() - begun, at_leisure=at_leisure)
            raise
        self._write(ends=what, seconds=time.perf_counter() - begun, at_leisure=at_leisure)

    def answer(self, label: str, text: str) -> None:
        """Report an answer, which must be the same in every process."""
        self._write(answer=label, text=text)

    def fault(self, check: str, message: str) -> None:
        """Report a fault of the plug-in."""
        self._write(fault=check, message=message)

    def note(self, check: str, message: str) -> None:
        """Report the basis of a check that succeeds."""
        self._write(note=check, message=message)

    def finish(self) -> None:
        """Report the end of the trial."""
        self._write(over=True)

    def _write(self, **document: Any) -> None:
        self._target.write(f"{json.dumps(document)}\n")
        self._target.flush()


INTERFACE = "interface"
"""Check of a plug-in's class, and the argument of the process that makes it."""


def try_interface(
    reporter: TrialReporter,
    load: Callable[[], type],
    make: Callable[[], object],
    faults: Callable[[type], Iterable[str]] = lambda _: (),
) -> None:
    """Report what is wrong about a plug-in's class, or why no instance of it can be made.

    Args:
        reporter: output of the trial.
        load: imports and returns the class.
        make: makes an instance.
        faults: returns what is wrong about the class, if that can be said without an instance.
    """
    with reporter.call("import and construction", at_leisure=True):
        try:
            kind = load()
            fault = "; ".join(faults(kind))
            if not fault:
                try:
                    make()
                except MillraceError:
                    raise
                except Exception as failed:  # noqa: BLE001 - somebody else's code
                    fault = f"{type(failed).__name__}: {failed} ({raised_at(failed, kind)})"
        except MillraceError as refused:
            fault = str(refused)
    if fault:
        reporter.fault(INTERFACE, fault)


@dataclass
class Trial:
    """Reports of a trial's process.

    Attributes:
        answers: label -> answer.
        faults: check -> faults, in order.
        notes: check -> basis of its success.
        longest: seconds of the longest call, and its name.
        calling: the call that took too long and was ended; empty if none did.
    """

    answers: dict[str, str] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    longest: tuple[float, str] = (0.0, "")
    calling: str = ""

    def fault_of(self, check: str) -> str:
        """Return the first fault and the number of others, or an empty string."""
        faults = self.faults.get(check, [])
        if not faults:
            return ""
        return faults[0] + (f" (and {len(faults) - 1} more)" if len(faults) > 1 else "")


def first_difference(trials: Sequence[Trial]) -> tuple[str, str, str] | None:
    """Return the label of the first answer that differs between the first process and another, and both answers."""
    one, *others = (trial.answers for trial in trials)
    for other in others:
        for label in one:
            if label in other and one[label] != other[label]:
                return label, one[label], other[label]
    return None


class TrialEndedError(RunError):
    """The process of a trial has died; `trial` has what it had reported."""

    def __init__(self, message: str, trial: Trial) -> None:
        super().__init__(message)
        self.trial = trial


def run_trial(arguments: Sequence[str], hash_seed: int) -> Trial:
    """Test a plug-in with `python -m campaign.admin.checks.process ARGUMENTS`.

    Raises:
        TrialEndedError: the process died.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "campaign.admin.checks.process", *arguments],
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # all that the plug-in has started ends with it
        )
        try:
            return _read_trial(process, log)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            # Not read to its end: what has left the session may hold it open.
            assert process.stdout is not None  # noqa: S101 - it was asked for
            process.stdout.close()


def check_interface(kind: str, name: str, description: str) -> Check:
    """Return the check of a plug-in's class, which is imported and constructed in a process of its own.

    A process that the plug-in starts then does not hold the output of the command open.

    Args:
        kind: `scheduler` or `workload`.
        name: the plug-in.
        description: message of the check if it succeeds.
    """
    try:
        trial = run_trial([kind, name, INTERFACE], hash_seed=1)
    except TrialEndedError as died:
        return Check(INTERFACE, False, str(died))
    overdue = f"{trial.calling} did not return within {START_S:g} s" if trial.calling else ""
    fault = overdue or trial.fault_of(INTERFACE)
    return Check(INTERFACE, not fault, fault or description)


def _read_trial(process: "subprocess.Popen[bytes]", log: IO[str]) -> Trial:
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
        raise TrialEndedError(f"the process of the check has reported nothing for {START_S:g} s", trial)
    process.wait()
    log.seek(0)
    lines_left = log.read()[-MAX_LOG_CHARACTERS:].strip().splitlines()
    # The call neither returns nor takes too long.
    trial.calling = ""
    said = f": {lines_left[-1]}" if lines_left else ""
    raise TrialEndedError(f"the process of the check ended with status {process.returncode}{where}{said}", trial)


class _Lines:
    """Documents from the process's standard output.

    Attributes:
        ended: whether the output has ended.
    """

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None  # noqa: S101 - it was asked for
        self._process, self._source = process, process.stdout
        self._buffer = b""
        self.ended = False

    def next(self, seconds: float) -> dict[str, Any] | None:
        """Return the next document; None after `seconds` or at the end of the output."""
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._source, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(min(POLL_S, max(0.0, deadline - time.monotonic()))):
                    # A process that the plug-in has left behind may hold the output open.
                    self.ended = self._process.poll() is not None
                    if self.ended or time.monotonic() >= deadline:
                        return None
                    continue
                received = os.read(self._source.fileno(), 1 << 16)
                if not received:
                    self.ended = True
                    return None
                self._buffer += received
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message
