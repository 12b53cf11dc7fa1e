"""Whether a process hangs: look after look it says nothing, uses no CPU time, and nothing keeps it from that.

A worker reports every second, whatever else it does; one that was stopped (SIGSTOP), or whose operator waits for what
does not come, reports no more. Who waits may be slow only, and is given long. An overloaded machine is another thing:
who has work and gets no CPU is runnable, who waits for a disk or for memory that was swapped out cannot be woken, and
who computes for an hour without a word uses CPU time. None of these hangs, nor does what a debugger holds.

What counts is looks, not seconds: when it was the agent that slept, it has looked once.
"""

from collections.abc import Mapping
from pathlib import Path

from agents.sensors.cpu import process_cpu_ns

LOOK_S = 1.0
"""From one look to the next."""

MOST_LOOKS: Mapping[str, int] = {"T": 15, "S": 300}
"""State, as `/proc` has it (stopped, or waiting for an event) -> looks in a row after which a process hangs."""


class HangDetector:
    """What is known of one process."""

    def __init__(self, pid: int) -> None:
        """Begin with a process that has just done something."""
        self._pid = pid
        self._spoke = True
        self._used_ns: int | None = None
        self._looks = 0

    def spoke(self) -> None:
        """It has said something."""
        self._spoke = True

    def look(self) -> str | None:
        """Look once more; return in words what it does if that is to hang, else None."""
        # Who speaks, as nearly all do every time, costs no system call.
        used_ns = None if self._spoke else process_cpu_ns(self._pid)
        state = "" if used_ns is None or used_ns != self._used_ns else _state(self._pid)
        self._looks = self._looks + 1 if state in MOST_LOOKS else 0
        self._used_ns, self._spoke = used_ns, False
        if state not in MOST_LOOKS or self._looks < MOST_LOOKS[state]:
            return None
        how = "it is stopped" if state == "T" else "it waits"
        return f"{how}, and has said nothing and used no CPU time for {self._looks * LOOK_S:g} s"


def _state(pid: int) -> str:
    """State of a process; empty when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The name before it may hold anything.
    return stat.rpartition(")")[2].split()[0]
