"""The thread that reads all sensors once a second and writes the agent's trace files.

Deadlines are absolute, so that the sampling interval does not drift. Missed deadlines are skipped and counted. The
thread's own CPU time, including writing, is part of every second's trace (`sampler_cost`).

Its events: `sensor_absent` (cannot work here; once), `sensor_failed` (this sample is missing), `sampler_cost` (CPU
seconds since the last such event), `sample_late` (by how many seconds), `samples_skipped` (how many), and those of its
callers.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agents.sensors import GROUP, Host, Row, Sensor
from agents.trace import TraceWriter
from inventory.errors import MillraceError
from inventory.plugins import load_plugin
from inventory.times import NS

PERIOD_S = 1.0

CLOCK_EVERY_NS = 10_000_000_000
"""Interval of the rows that map the monotonic clock to UTC."""

LATE_NS = 100_000_000
"""Delay after the deadline from which a sample counts as late."""

LONGEST_WAIT_S = 20.0
"""Longest wait for rows about the last mark; controllers wait slightly longer for agents."""

_POLL_S = 0.1

FAILED = "sensor_failed"
"""Kind of the event that a sample of a sensor is missing."""

_SUBJECT = "sampler"

_log = logging.getLogger(__name__)


class Sampler:
    """Samples all sensors from `start` to `stop`, and owns the trace writer."""

    def __init__(
        self,
        sensors: Sequence[str],
        host: Host,
        writer: TraceWriter,
        on_fault: Callable[[str], None],
        on_rows: Callable[[Sequence[Row]], None] = lambda _: None,
        period_s: float = PERIOD_S,
    ) -> None:
        """Take ownership of `writer`.

        Args:
            sensors: names under `millrace.sensors`.
            host: to measure.
            writer: closed by `stop`.
            on_fault: called from the thread, with the reason, if trace files cannot be written.
            on_rows: called from the thread with all rows of every sample.
            period_s: sampling interval.
        """
        self._names = sensors
        self._host = host
        self._writer = writer
        self._on_fault = on_fault
        self._on_rows = on_rows
        self._period_ns = int(period_s * NS)
        self._sensors: dict[str, Sensor] = {}
        self._next_clock_ns = self._marked_ns = 0
        self._give_up_s = 0.0
        self._wake = threading.Condition()
        self._forced = self._stopping = self._given_up = False
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        """Start the thread, which takes a first sample at once."""
        self._thread.start()

    def event(self, kind: str, subject: str = "", detail: str = "", value: float | None = None) -> None:
        """Write an event with the current time; callable from any thread."""
        # Text from a sensor may contain anything, but the file requires UTF-8.
        detail = detail.encode(errors="replace").decode()
        self._writer.add("event", time.monotonic_ns(), kind, subject, detail, value)

    def mark(self, kind: str) -> None:
        """Write an event with the current time and take a sample at once; callable from any thread."""
        self.event(kind)
        self._marked_ns = time.monotonic_ns()
        with self._wake:
            self._forced = True
            self._wake.notify()

    def stop(self, patience_s: float, wait_s: float = 0.0) -> bool:
        """Take a last sample, close sensors and trace files.

        Args:
            patience_s: time-out.
            wait_s: additional time-out while sensors await rows about the last mark.

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
        """Stop waiting for rows about the last mark; callable from any thread."""
        self._given_up = True

    def _run(self) -> None:
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
            self._on_fault(f"the sampler has failed: {_description(fault)}")

    def _sample_until_stopped(self) -> None:
        cost_ns = time.thread_time_ns()
        due_ns = time.monotonic_ns()
        while True:
            self._sample(self._sensors)
            self._writer.flush()
            before_ns, cost_ns = cost_ns, time.thread_time_ns()
            self.event("sampler_cost", _SUBJECT, "", (cost_ns - before_ns) / NS)
            with self._wake:
                if self._stopping and not self._forced:
                    return
            due_ns = self._after(due_ns)
            if self._wait_until(due_ns):
                # This sample is an additional one; the schedule stays.
                due_ns -= self._period_ns
            else:
                late_ns = time.monotonic_ns() - due_ns
                if late_ns > LATE_NS:
                    self.event("sample_late", _SUBJECT, "", late_ns / NS)

    def _wait_for_late_rows(self) -> None:
        waiting = dict(self._sensors)
        while not self._given_up and time.monotonic() < self._give_up_s:
            waiting = {name: sensor for name, sensor in waiting.items() if self._awaits(name, sensor)}
            if not waiting:
                return
            time.sleep(_POLL_S)
            self._sample(waiting)

    def _awaits(self, name: str, sensor: Sensor) -> bool:
        try:
            return sensor.awaits(self._marked_ns)
        except Exception as fault:  # noqa: BLE001 - as below
            self.event(FAILED, name, _description(fault))
            return False

    def _after(self, due_ns: int) -> int:
        """Return the first deadline after `due_ns` that has not passed."""
        due_ns += self._period_ns
        behind_ns = time.monotonic_ns() - due_ns
        if behind_ns <= 0:
            return due_ns
        skipped = -(-behind_ns // self._period_ns)
        self.event("samples_skipped", _SUBJECT, "", float(skipped))
        return due_ns + skipped * self._period_ns

    def _wait_until(self, due_ns: int) -> bool:
        """Sleep until `due_ns`; return True if a sample was requested before."""
        with self._wake:
            while not (self._forced or self._stopping):
                left_ns = due_ns - time.monotonic_ns()
                if left_ns <= 0:
                    return False
                self._wake.wait(left_ns / NS)
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
            except Exception as fault:  # noqa: BLE001 - a sensor may be third-party; its failure must not end the run
                self.event(FAILED, name, _description(fault))
                continue
            for row in rows:
                self._writer.add(row.table, row.t_ns, *row.values)
            sample += rows
        self._on_rows(sample)

    def _check(self, rows: Sequence[Row]) -> None:
        """Check all rows of a table at once, which costs as much as a single row."""
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
                self.event("sensor_absent", name, _description(fault))
                continue
            try:
                reason = sensor.probe()
            except Exception as fault:  # noqa: BLE001 - as above
                reason = f"its probe failed: {_description(fault)}"
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


def _description(fault: Exception) -> str:
    return str(fault) if isinstance(fault, MillraceError) else f"{type(fault).__name__}: {fault}"
