"""The thread that reads all sensors once a second, and the one that writes the agent's trace files.

Deadlines are absolute, so that the distance of samples does not drift; a deadline that has passed is skipped and
counted, never caught up. The thread's own CPU time is part of every second's trace (`sampler_cost`), the time it takes
to write included.

Events it writes: `sensor_absent` (cannot work here; once), `sensor_failed` (this sample is missing), `sampler_cost`
(CPU seconds since the last such event), `sample_late` (by how many seconds), `samples_skipped` (how many), and those
of its callers.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agents.sensors.base import GROUP, Host, Row, Sensor
from agents.trace import TraceWriter
from inventory.errors import MillraceError
from inventory.plugins import load_plugin

PERIOD_S = 1.0

CLOCK_EVERY_NS = 10_000_000_000
"""Distance of the rows that map the monotonic clock to UTC."""

LATE_NS = 100_000_000
"""A sample that begins later than this after its deadline is flagged."""

LONGEST_WAIT_S = 20.0
"""For rows about the last mark, when it is over; controllers wait a little longer for agents."""

_LOOK_S = 0.1

_SUBJECT = "sampler"

_log = logging.getLogger(__name__)


class Sampler:
    """Samples from `start` to `stop`; the trace writer is its own from then on."""

    def __init__(
        self,
        sensors: Sequence[str],
        host: Host,
        writer: TraceWriter,
        on_fault: Callable[[str], None],
        on_rows: Callable[[Sequence[Row]], None] = lambda _: None,
        period_s: float = PERIOD_S,
    ) -> None:
        """Take over `writer`.

        Args:
            sensors: names under `millrace.sensors`.
            host: what they measure.
            writer: closed by `stop`.
            on_fault: called, from the thread, with what went wrong when trace files cannot be written.
            on_rows: called, from the thread, with all rows of every sample.
            period_s: distance of samples.
        """
        self._names = sensors
        self._host = host
        self._writer = writer
        self._on_fault = on_fault
        self._on_rows = on_rows
        self._period_ns = int(period_s * 1e9)
        self._sensors: dict[str, Sensor] = {}
        self._next_clock_ns = self._marked_ns = 0
        self._give_up_s = 0.0
        self._wake = threading.Condition()
        self._forced = self._stopping = self._given_up = False
        self._thread = threading.Thread(target=self._live, name="sampler", daemon=True)

    def start(self) -> None:
        """Begin with a first sample."""
        self._thread.start()

    def event(self, kind: str, subject: str = "", detail: str = "", value: float | None = None) -> None:
        """Write an event that happens now; from any thread."""
        # What a sensor says may hold anything; the file takes UTF-8 only.
        detail = detail.encode(errors="replace").decode()
        self._writer.add("event", time.monotonic_ns(), kind, subject, detail, value)

    def mark(self, kind: str) -> None:
        """Write an event that happens now and take a sample at once; from any thread."""
        self.event(kind)
        self._marked_ns = time.monotonic_ns()
        with self._wake:
            self._forced = True
            self._wake.notify()

    def stop(self, patience_s: float, wait_s: float = 0.0) -> bool:
        """Take a last sample, close sensors and trace files.

        Args:
            patience_s: what that may take.
            wait_s: what it may take besides, as long as sensors await rows about the last mark.

        Returns:
            Whether it was done in time.
        """
        with self._wake:
            self._give_up_s = time.monotonic() + wait_s
            self._stopping = True
            self._wake.notify()
        self._thread.join(patience_s + wait_s)
        return not self._thread.is_alive()

    def give_up(self) -> None:
        """Await no more rows about the last mark; from any thread."""
        self._given_up = True

    def _live(self) -> None:
        try:
            try:
                self._open_sensors()
                self._sample_until_stopped()
                self._wait_for_late_rows()
            finally:
                for name, sensor in self._sensors.items():
                    self._close(name, sensor)
                self._writer.close()
        except OSError as fault:
            self._on_fault(f"the trace files cannot be written: {fault}")
        except Exception as fault:  # noqa: BLE001 - the agent reports it; a silent thread would lose the run's traces
            _log.exception("the sampler has failed")
            self._on_fault(f"the sampler has failed: {_words(fault)}")

    def _sample_until_stopped(self) -> None:
        cost_ns = time.thread_time_ns()
        due_ns = time.monotonic_ns()
        while True:
            self._sample(self._sensors)
            self._writer.flush()
            before_ns, cost_ns = cost_ns, time.thread_time_ns()
            self.event("sampler_cost", _SUBJECT, "", (cost_ns - before_ns) / 1e9)
            with self._wake:
                if self._stopping and not self._forced:
                    return
            due_ns = self._after(due_ns)
            if self._wait_until(due_ns):
                # The schedule stays as it is: this sample is one more.
                due_ns -= self._period_ns
            else:
                late_ns = time.monotonic_ns() - due_ns
                if late_ns > LATE_NS:
                    self.event("sample_late", _SUBJECT, "", late_ns / 1e9)

    def _wait_for_late_rows(self) -> None:
        waiting = dict(self._sensors)
        while not self._given_up and time.monotonic() < self._give_up_s:
            waiting = {name: sensor for name, sensor in waiting.items() if self._awaits(name, sensor)}
            if not waiting:
                return
            time.sleep(_LOOK_S)
            self._sample(waiting)

    def _awaits(self, name: str, sensor: Sensor) -> bool:
        try:
            return sensor.awaits(self._marked_ns)
        except Exception as fault:  # noqa: BLE001 - as below
            self.event("sensor_failed", name, _words(fault))
            return False

    def _after(self, due_ns: int) -> int:
        """The first deadline after `due_ns` that has not passed."""
        due_ns += self._period_ns
        behind_ns = time.monotonic_ns() - due_ns
        if behind_ns <= 0:
            return due_ns
        skipped = -(-behind_ns // self._period_ns)
        self.event("samples_skipped", _SUBJECT, "", float(skipped))
        return due_ns + skipped * self._period_ns

    def _wait_until(self, due_ns: int) -> bool:
        """Sleep until `due_ns`; return True when a sample was asked for before that."""
        with self._wake:
            while not (self._forced or self._stopping):
                left_ns = due_ns - time.monotonic_ns()
                if left_ns <= 0:
                    return False
                self._wake.wait(left_ns / 1e9)
            self._forced = False
            return True

    def _sample(self, sensors: Mapping[str, Sensor]) -> None:
        now_ns = time.monotonic_ns()
        if now_ns >= self._next_clock_ns:
            self._next_clock_ns = now_ns + CLOCK_EVERY_NS
            before_ns = time.monotonic_ns()
            utc_ns = time.time_ns()
            self._writer.add("clock", (before_ns + time.monotonic_ns()) // 2, utc_ns, None, None)
        sample: list[Row] = []
        for name, sensor in sensors.items():
            try:
                rows = list(sensor.read(now_ns))
                self._check(rows)
            except Exception as fault:  # noqa: BLE001 - a sensor may be anybody's; its fault must not end the run
                self.event("sensor_failed", name, _words(fault))
                continue
            for row in rows:
                self._writer.add(row.table, row.t_ns, *row.values)
            sample += rows
        self._on_rows(sample)

    def _check(self, rows: Sequence[Row]) -> None:
        """All rows of a table at once: that is as dear as one row."""
        by_table: dict[str, list[tuple[Any, ...]]] = {}
        for row in rows:
            by_table.setdefault(row.table, []).append((row.t_ns, *row.values))
        for table, given in by_table.items():
            self._writer.check(table, given)

    def _open_sensors(self) -> None:
        for name in self._names:
            try:
                sensor: Sensor = load_plugin(GROUP, name)(self._host)
            except Exception as fault:  # noqa: BLE001 - as above
                self.event("sensor_absent", name, _words(fault))
                continue
            try:
                reason = sensor.probe()
            except Exception as fault:  # noqa: BLE001 - as above
                reason = f"its probe failed: {_words(fault)}"
            if reason is None:
                self._sensors[name] = sensor
            else:
                self.event("sensor_absent", name, str(reason))
                self._close(name, sensor)

    def _close(self, name: str, sensor: Sensor) -> None:
        try:
            sensor.close()
        except Exception:  # noqa: BLE001 - as above
            _log.exception("sensor %s cannot be closed", name)


def _words(fault: Exception) -> str:
    return str(fault) if isinstance(fault, MillraceError) else f"{type(fault).__name__}: {fault}"
