"""Current state of a campaign, which the run loop updates, and its file `live.json`.

The views of `campaign.display.progress` show the state; `millrace top` (`campaign.results.watch`) and scripts read the
file, which is replaced every second.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from campaign.agenda.run_order import Run
from campaign.results.result_store import FAILED, OK, SKIPPED
from controller.coordinator.live_metrics import LiveMetrics
from controller.host.process_identity import identify
from inventory.documents import to_plain

LIVE_FILE = "live.json"

OVERHEAD_S = 4.0
"""Estimated duration of a run without warm-up and measured interval, until a run has been timed."""

REPORTING = "reporting"
"""Stage after the last run while the report is built; `live.json` is not updated meanwhile."""

FINISHED, INTERRUPTED, FAILING = "finished", "interrupted", "failed"
"""The last stages."""


LiveContent = Mapping[str, Any]
"""Content of `live.json`; see docs/reference/results.md."""


class LiveFile:
    """Current state of a campaign.

    Attributes:
        campaign: name of the campaign.
        total: number of its runs.
        outcomes: number of runs with each status, including runs before `--resume`.
        run: the current run, or None.
        attempt: number of the attempt at the run.
        stage_name: the current stage.
        stage_s: expected duration of the stage, or None.
    """

    def __init__(self, campaign: str, total: int, done: int, nominal_s: float) -> None:
        """Start with `done` of `total` runs complete; `nominal_s` is a run's warm-up and measured interval."""
        self.campaign, self.total = campaign, total
        self.outcomes: Counter[str] = Counter({OK: done})
        self.run: Run | None = None
        self.attempt = 1
        self.stage_name = "preparing"
        self.stage_s: float | None = None
        self._stage_since = self._run_since = time.monotonic()
        self._flow: LiveMetrics | None = None
        self._sending: dict[str, tuple[int, int]] = {}
        self._process = to_plain(identify(os.getpid()))
        self._nominal_s = nominal_s
        self._took: list[float] = []
        self._left = total - done

    def start(self, run: Run, attempt: int, left: int) -> None:
        """Begin a run, with `left` runs after it."""
        self.run, self.attempt, self._left = run, attempt, left
        self._run_since = time.monotonic()
        self.stage("starting")

    def stage(self, name: str, seconds: float | None = None, flow: LiveMetrics | None = None) -> None:
        """Begin a stage with an expected duration of `seconds`; `flow` has the live metrics of the topology."""
        self.stage_name, self.stage_s, self._flow = name, seconds, flow
        self._sending = {}
        self._stage_since = time.monotonic()

    def send(self, what: str, sent: int, of: int) -> None:
        """Record the progress of a transfer to a node, in bytes; thread-safe."""
        self._sending[what] = (sent, of)

    def end(self, status: str) -> float:
        """End the run; return its duration in seconds."""
        took = time.monotonic() - self._run_since
        self.outcomes[status] += 1
        if status == OK:
            self._took.append(took)
        self.run = None
        self.stage("between runs")
        return took

    def close(self, how: str) -> None:
        """End the last run; the stage becomes `reporting`, `finished`, `interrupted` or `failed`."""
        self.run, self._left = None, 0
        self.stage(how)

    @property
    def in_stage_s(self) -> float:
        """Seconds since the stage began."""
        return time.monotonic() - self._stage_since

    @property
    def time_left_s(self) -> float:
        """Estimated seconds until the last run has ended."""
        expected = sum(self._took) / len(self._took) if self._took else self._nominal_s + OVERHEAD_S
        current = max(0.0, expected - (time.monotonic() - self._run_since)) if self.run else 0.0
        return current + expected * self._left

    @property
    def number(self) -> int:
        """Number of runs that have ended or are running."""
        return sum(self.outcomes.values()) + (self.run is not None)

    def document(self) -> LiveContent:
        """Return the state as plain data; unknown values are None."""
        now = time.monotonic()
        tuples_per_s, latency_p50_ms = (None, None) if self._flow is None else self._flow.sample(now)
        moves = list(self._sending.values())
        sent, of = sum(sent for sent, _ in moves), sum(of for _, of in moves)
        return {
            "campaign": self.campaign,
            "process": self._process,
            "updated_utc": _utc(),
            "run": None if self.run is None else self.run.name,
            "attempt": None if self.run is None else self.attempt,
            "number": self.number,
            "of": self.total,
            "stage": self.stage_name,
            "stage_elapsed_s": round(self.in_stage_s, 1),
            "stage_s": self.stage_s,
            "tuples_per_s": _rounded(tuples_per_s),
            "latency_p50_ms": _rounded(latency_p50_ms),
            "sending": {"sent_bytes": sent, "of_bytes": of} if sent < of else None,
            "time_left_s": round(self.time_left_s, 1),
            "outcomes": {status: self.outcomes[status] for status in (OK, FAILED, SKIPPED)},
            "flow": None if self._flow is None else to_plain(self._flow.document(now)),
        }


def write_live(document: LiveContent, folder: Path) -> None:
    """Replace `live.json`; ignore errors, which must not end a campaign."""
    beside = folder / f".{LIVE_FILE}.new"
    try:
        beside.write_text(json.dumps(document) + "\n")
        beside.replace(folder / LIVE_FILE)
    except OSError:
        with suppress(OSError):
            beside.unlink()


def finish_live(folder: Path) -> None:
    """Set the last stage of a campaign whose report is built or has failed."""
    with suppress(OSError, ValueError):
        document = json.loads((folder / LIVE_FILE).read_text())
        write_live(document | {"updated_utc": _utc(), "stage": FINISHED, "stage_elapsed_s": 0.0}, folder)


def in_words(seconds: float) -> str:
    """Format a duration: `45 s`, `3 min 05 s`, `2 h 10 min`, `3 d 4 h`.

    >>> in_words(45), in_words(185), in_words(7800), in_words(274000)
    ('45 s', '3 min 05 s', '2 h 10 min', '3 d 4 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def ms_in_words(ms: float) -> str:
    """Format a latency: `0.512 ms`, `12.3 ms`, `12,346 ms`."""
    return f"{ms:,.0f} ms" if ms >= 100 else f"{ms:.3g} ms"


def _utc() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
