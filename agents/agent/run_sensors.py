"""The sensors of a run on one node, and the detection of work for others there."""

import ipaddress
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from agents.power.reader import MeteredHost
from agents.protocol import Welcome
from agents.sensors import Host, Row
from agents.sensors.interference import InterferenceMonitor
from agents.sensors.sampler import Sampler
from agents.trace import AGENT, TraceWriter

_STOP_S, _KILLED_S = 3.0, 0.5
"""Timeout for the last sample, after which the agent continues without it; the same when the controller is gone."""


class RunSensors:
    """Sensors of a run on this node, from their start to their end."""

    def __init__(
        self,
        names: Sequence[str],
        welcome: Welcome,
        run: str,
        traces: Path,
        agent: int | None,
        workers: Callable[[], Mapping[int, int]],
        processes: Callable[[], Iterable[int]],
        on_fault: Callable[[str], None],
        on_rows: Callable[[Sequence[Row]], None] = lambda _: None,
        root: Path = Path("/"),
    ) -> None:
        """Start the sensors.

        Args:
            names: of the sensors.
            welcome: id and address of this node, and what is known of its energy.
            run: id of the run.
            traces: folder of its traces.
            agent: process that counts as the agent; None: there is none.
            workers: returns slot -> process id of the live workers.
            processes: returns the ids of all processes of the run, beside the agent.
            on_fault: called from the sensors' thread, with the reason, if trace files cannot be written.
            on_rows: called from the sensors' thread with all rows of every sample.
            root: see `Host.root`.
        """
        shared = welcome.shared or ipaddress.ip_address(welcome.address).is_loopback
        host = Host(
            node=welcome.node,
            address=welcome.address,
            shared=shared,
            agent=agent,
            workers=workers,
            power=None if shared else welcome.power,
            meter_lag=welcome.meter_lag,
            root=root,
        )
        machine = MeteredHost.at(root)
        monitor = self._monitor = InterferenceMonitor(machine, shared, lambda: [os.getpid(), *processes()])

        def check(rows: Sequence[Row]) -> None:
            for event in monitor.check():
                self.event(*event)
            on_rows(rows)

        self._sampler = Sampler(names, host, TraceWriter(traces, run, welcome.node, AGENT), on_fault, check)
        self._given_up = False
        self._sampler.start()

    def event(self, kind: str, subject: str, detail: str, value: float | None = None) -> None:
        """Write an event; callable from any thread."""
        self._sampler.event(kind, subject, detail, value)

    def mark(self, kind: str) -> None:
        """Write an event of the run, and take a sample."""
        self._monitor.mark(kind)
        self._sampler.mark(kind)

    def cpus_are_set(self) -> AbstractContextManager[None]:
        """Return a context in which changes of CPU settings do not count as interference."""
        return self._monitor.set_by_us()

    def give_up(self) -> None:
        """Have `stop` wait a moment only, because the controller is gone."""
        self._given_up = True
        self._sampler.give_up()

    def stop(self, wait_s: float) -> bool:
        """Take the last sample and close the trace files; return whether that was done in time.

        Args:
            wait_s: how long to wait for rows about the last mark.
        """
        sampled = self._sampler.stop(_KILLED_S if self._given_up else _STOP_S, wait_s)
        if sampled:
            self._monitor.close()
        return sampled
