"""What the control of a run did, for its traces (`event` rows of node "") and for `run.json`."""

from typing import Any

from agents.sensors.interference import Event
from controller.coordinator.interfaces import Note
from workloads.rates import NS

CONTROLLER = ""
"""The node of the controller's own rows in the traces."""


class EventLog:
    """Checkpoints, recoveries and moves of one run.

    Attributes:
        checkpoints: how many were completed.
        recoveries, moves: one entry for each, as in `run.json`; times are seconds since the sources' start.
    """

    def __init__(self, note: Note) -> None:
        """Begin empty; `note` takes the events."""
        self._note = note
        self.checkpoints = 0
        self.recoveries: list[dict[str, Any]] = []
        self.moves: list[dict[str, Any]] = []

    def seen(self, event: Event) -> None:
        """What makes the figures of this host doubtful."""
        self._note(*event)

    def mark(self, kind: str) -> None:
        """An end of the measured interval."""
        self._note(kind, "", "", None)

    def checkpoint(self, barrier: int, took_s: float, nbytes: int) -> None:
        """A checkpoint is complete, so long after it was begun."""
        self.checkpoints += 1
        self._note("checkpoint", str(barrier), f"bytes={nbytes}", took_s)

    def abandoned(self, barrier: int, why: str) -> None:
        """A barrier did not come, or did not bring about what it was for."""
        self._note("barrier_abandoned", str(barrier), why, None)

    def node_lost(self, node: str, why: str) -> None:
        """The agent of a node cannot be started again."""
        self._note("node_lost", node, why, None)

    def node_returned(self, node: str) -> None:
        """The agent of a lost node could be started."""
        self._note("node_returned", node, "", None)

    def recovery(self, at_s: float, took_s: float, cause: str, checkpoint: int, replayed: int) -> None:
        """The topology flows again, from `checkpoint` on (0: from nothing).

        Args:
            at_s: when the failure arrived.
            took_s: from then until the sources were told to go on.
            cause: the failure.
            checkpoint: where it begins.
            replayed: tuples that sources are known to have emitted before, and emit again.
        """
        entry = {"at_s": at_s, "took_s": took_s, "cause": cause, "checkpoint": checkpoint, "replayed_tuples": replayed}
        self.recoveries.append(_rounded(entry))
        self._note("recovery", "", f"checkpoint={checkpoint} replayed={replayed} cause={cause}", took_s)

    def moved(
        self,
        executor: str,
        source: str,
        target: str,
        at_s: float,
        pause_s: float,
        state_bytes: int,
        buffered: int,
        cpu_ns: int,
    ) -> None:
        """An executor works in its new place; units as in `agents.protocol.Moved`."""
        entry = {
            "executor": executor,
            "from": source,
            "to": target,
            "at_s": at_s,
            "pause_s": pause_s,
            "state_bytes": state_bytes,
            "buffered_rows": buffered,
            "cpu_ms": cpu_ns / NS * 1e3,
        }
        self.moves.append(_rounded(entry))
        detail = " ".join(
            f"{key}={self.moves[-1][key]}" for key in ("from", "to", "state_bytes", "buffered_rows", "cpu_ms")
        )
        self._note("move", executor, detail, pause_s)

    def not_moved(self, executor: str, target: str, at_s: float, why: str) -> None:
        """A move that was asked for did not come about."""
        self.moves.append(_rounded({"executor": executor, "to": target, "at_s": at_s, "abandoned": why}))


def _rounded(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 6) if isinstance(value, float) else value for key, value in entry.items()}
