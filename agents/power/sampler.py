"""The thread that samples a host's meters at absolute deadlines.

A deadline that has passed is skipped and counted, never caught up; the next ones stay where they were. A sample may be
forced at any moment besides, by the thread that wants it.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from agents.power.metering import Metering
from agents.power.series import Sample
from agents.power.settings import MOST_HZ

NICENESS = -10
"""Of the thread, where the user may have it."""

LATE_NS = 10_000_000
"""A sample that begins later than this after its deadline is flagged."""


class Deadlines:
    """Moments at equal distances, whatever happens in between.

    Attributes:
        begin_ns: the first one.
        due_ns: the next one.
        skipped: how many had passed before anyone came to them.
    """

    def __init__(self, begin_ns: int, rate_hz: float) -> None:
        self.begin_ns, self._rate_hz = begin_ns, rate_hz
        self._number = 0
        self.due_ns, self.skipped = begin_ns, 0

    def go_on(self, now_ns: int) -> None:
        """Set the first deadline after the present one that lies in the future."""
        self._number += 1
        # Counted from the beginning: periods that are no whole nanoseconds would add up to a drift.
        passed = int((now_ns - self.begin_ns) * self._rate_hz / 1e9) + 1
        if passed > self._number:
            self.skipped += passed - self._number
            self._number = passed
        self.due_ns = self.begin_ns + round(self._number * 1e9 / self._rate_hz)


class PowerSampler:
    """Samples from `start` to `stop`.

    Attributes:
        deadlines: when.
        late: samples that began late.
    """

    def __init__(self, metering: Metering, on_samples: Callable[[Sequence[Sample]], None]) -> None:
        """Do nothing yet.

        Args:
            metering: is closed by `stop`.
            on_samples: called with every sample, from the thread or from that which forces it; one at a time.
        """
        self._metering, self._on_samples = metering, on_samples
        self._stopped = threading.Event()
        self._one_at_a_time = threading.Lock()
        # Slower than its counters allow, a wish is not granted.
        self._rate_hz = min(MOST_HZ, max(metering.settings.rate_hz, metering.fewest_hz))
        self.deadlines = Deadlines(metering.host.monotonic_ns(), self._rate_hz)
        self._thread = threading.Thread(target=self._live, name="power sampler", daemon=True)
        self.late = 0

    @property
    def cpu_s(self) -> float:
        """CPU time of the thread, while it lives."""
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident)) if self._thread.ident else 0.0

    @property
    def skipped(self) -> int:
        """Deadlines that had passed before their sample could begin."""
        return self.deadlines.skipped

    def start(self) -> None:
        """Begin with a first sample."""
        self.deadlines = Deadlines(self._metering.host.monotonic_ns(), self._rate_hz)
        self._thread.start()

    def force(self) -> None:
        """Take a sample now."""
        self._sample(late=False)

    def stop(self) -> None:
        """Take no further sample, and close the meters; a last one may be forced before."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._metering.close()

    def _live(self) -> None:
        # A thread that works for a quarter of a millisecond must not wait for others' time slices. Not all may.
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        clock = self._metering.host.monotonic_ns
        deadlines = self.deadlines
        while True:
            now_ns = clock()
            late = now_ns - deadlines.due_ns > LATE_NS
            self.late += late
            self._sample(late)
            deadlines.go_on(clock())
            if self._stopped.wait((deadlines.due_ns - clock()) / 1e9):
                return

    def _sample(self, late: bool) -> None:
        with self._one_at_a_time:
            self._on_samples(self._metering.sample(late))
