"""Thread that samples a host's meters at absolute deadlines.

A missed deadline is skipped and counted, never made up for; later deadlines do not change. Any thread may force an
additional sample at any time.
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
"""Nice value of the thread, if the user may set it."""

LATE_NS = 10_000_000
"""A sample that begins later than this after its deadline is flagged."""


class Deadlines:
    """Deadlines at a constant rate.

    Attributes:
        begin_ns: the first deadline.
        due_ns: the next deadline.
        skipped: number of missed deadlines.
    """

    def __init__(self, begin_ns: int, rate_hz: float) -> None:
        self.begin_ns, self._rate_hz = begin_ns, rate_hz
        self._number = 0
        self.due_ns, self.skipped = begin_ns, 0

    def go_on(self, now_ns: int) -> None:
        """Advance to the first later deadline that is in the future."""
        self._number += 1
        # Computed from the start: rounding of each period to nanoseconds would accumulate.
        passed = int((now_ns - self.begin_ns) * self._rate_hz / 1e9) + 1
        if passed > self._number:
            self.skipped += passed - self._number
            self._number = passed
        self.due_ns = self.begin_ns + round(self._number * 1e9 / self._rate_hz)


class PowerSampler:
    """Sampler thread, running from `start` to `stop`.

    Attributes:
        deadlines: the deadlines.
        late: number of samples that began late.
    """

    def __init__(self, metering: Metering, on_samples: Callable[[Sequence[Sample]], None]) -> None:
        """Prepare the thread without starting it.

        Args:
            metering: the meters; closed by `stop`.
            on_samples: called with every sample, by the sampler thread or the forcing thread; never concurrently.
        """
        self._metering, self._on_samples = metering, on_samples
        self._stopped = threading.Event()
        self._one_at_a_time = threading.Lock()
        # A requested rate that is too low for the counters is raised.
        self._rate_hz = min(MOST_HZ, max(metering.settings.rate_hz, metering.fewest_hz))
        self.deadlines = Deadlines(metering.host.monotonic_ns(), self._rate_hz)
        self._thread = threading.Thread(target=self._run_loop, name="power sampler", daemon=True)
        self.late = 0

    @property
    def cpu_s(self) -> float:
        """CPU time of the thread while it runs."""
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident)) if self._thread.ident else 0.0

    @property
    def skipped(self) -> int:
        """Number of missed deadlines."""
        return self.deadlines.skipped

    def start(self) -> None:
        """Start the thread with a first sample."""
        self.deadlines = Deadlines(self._metering.host.monotonic_ns(), self._rate_hz)
        self._thread.start()

    def force(self) -> None:
        """Take a sample now."""
        self._sample(late=False)

    def stop(self) -> None:
        """Stop the thread and close the meters; a last sample may be forced before."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._metering.close()

    def _run_loop(self) -> None:
        # A thread that runs for 0.25 ms must not wait for the time slices of others. Not every user may do this.
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
