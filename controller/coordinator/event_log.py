"""Event log of a run's control, for its traces (`event` rows of node "") and for `run.json`."""

from typing import Any

from agents.sensors.interference import Event
from controller.coordinator.interfaces import NoteEvent
from workloads.rates import NS

CONTROLLER = ""
"""The node of the controller's own rows in the traces."""


class EventLog:
    """Checkpoints, recoveries and moves of one run.

    Attributes:
        checkpoints: number of completed checkpoints.
        recoveries, moves: one entry each, as in `run.json`; times are in seconds since the start of the sources.
    """

    def __init__(self, note: NoteEvent) -> None:
        """Start empty; `note` writes an event to the traces."""
        self._note = note
        self.checkpoints = 0
        self.recoveries: list[dict[str, Any]] = []
        self.moves: list[dict[str, Any]] = []

    def host_event(self, event: Event) -> None:
        """Record an event that makes measurements of this host doubtful."""
        self._note(*event)

    def mark(self, kind: str) -> None:
        """Record the start or the end of the measured interval."""
        self._note(kind, "", "", None)

    def checkpoint(self, barrier: int, took_s: float, nbytes: int) -> None:
        """Record a complete checkpoint."""
        self.checkpoints += 1
        self._note("checkpoint", str(barrier), f"bytes={nbytes}", took_s)

    def abandoned(self, barrier: int, why: str) -> None:
        """Record an abandoned barrier, or one whose checkpoint could not be stored."""
        self._note("barrier_abandoned", str(barrier), why, None)

    def node_lost(self, node: str, why: str) -> None:
        """Record that the agent of a node cannot be restarted."""
        self._note("node_lost", node, why, None)

    def node_returned(self, node: str) -> None:
        """Record that the agent of a lost node has been restarted."""
        self._note("node_returned", node, "", None)

    def recovery(self, at_s: float, took_s: float, cause: str, checkpoint: int, replayed: int) -> None:
        """Record a recovery: the topology runs again.

        Args:
            at_s: when the failure was reported, in seconds since the start of the sources.
            took_s: seconds from then until the sources were started again.
            cause: the failure.
            checkpoint: the checkpoint from which the topology was restarted; 0: from the beginning.
            replayed: tuples known to have been emitted before that the sources emit again.
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
        """Record that an executor runs in its new slot; units as in `agents.protocol.Moved`."""
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
        """Record that a requested move was not made."""
        self.moves.append(_rounded({"executor": executor, "to": target, "at_s": at_s, "abandoned": why}))


def _rounded(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 6) if isinstance(value, float) else value for key, value in entry.items()}
