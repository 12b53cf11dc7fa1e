"""What goes through the topology now, from what workers report once a second; for display only."""

import asyncio
from typing import NamedTuple

from agents.protocol import Place, Progress


class Sample(NamedTuple):
    """Tuples per second into the sinks, and their median latency; None where nothing is known yet."""

    tuples_per_s: float | None
    latency_p50_ms: float | None


class Flow:
    """The last word of every worker of an epoch."""

    def __init__(self) -> None:
        self._last: dict[Place, tuple[float, Progress]] = {}
        self._rates: dict[Place, tuple[float, int | None]] = {}

    def take(self, place: Place, progress: Progress) -> None:
        """Note what a worker reports."""
        now = asyncio.get_running_loop().time()
        before = self._last.get(place)
        self._last[place] = (now, progress)
        if before is not None and now > before[0]:
            rate = (progress.sunk - before[1].sunk) / (now - before[0])
            self._rates[place] = (rate, progress.latency_p50_ns)

    def sample(self) -> Sample:
        """The sum over all workers, and the middle of their latencies."""
        rates = [rate for rate, _ in self._rates.values()]
        latencies = sorted(p50 for _, p50 in self._rates.values() if p50 is not None)
        return Sample(
            sum(rates) if rates else None,
            latencies[len(latencies) // 2] / 1e6 if latencies else None,
        )
