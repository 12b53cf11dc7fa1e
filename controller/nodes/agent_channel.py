"""Control channel to the agent of one node: start, heartbeat, clock offset, end.

Reports are passed to one callback as they arrive; `Hello` and `Pulse` are handled by the channel itself. When the agent
ends or stops answering unexpectedly, `on_gone` is called once with the reason. An agent that does not start makes
`open` raise instead.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from agents import protocol
from agents.agent.worker_process import ending
from agents.protocol import HEARTBEAT_S, SILENCE_S, Bye, Heartbeat, Hello, Message, Pulse, Report, Welcome
from controller.coordinator.clock_offset import Offset, OffsetEstimate
from controller.nodes.transport import Remote, Transport
from inventory.energy_model import EnergyModel, MeterLag
from inventory.errors import RunError

HELLO_S = 60.0
"""Timeout for the start of an agent; a busy host starts many at once."""

BYE_S = 3.0
"""Time for an agent to clean up and exit before it is killed."""


class AgentKilledError(RunError):
    """An agent was killed by a signal while it started; another attempt may succeed."""


class AgentChannel:
    """The control channel to the agent of one node."""

    def __init__(
        self,
        node: str,
        transport: Transport,
        on_report: Callable[[str, Report], None],
        on_gone: Callable[[str, str], None],
    ) -> None:
        """`on_report(node, report)` and `on_gone(node, reason)` are called in the event loop and must not block."""
        self.node = node
        self.transport = transport
        self._on_report, self._on_gone = on_report, on_gone
        self._remote: Remote | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._hello: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()
        self._offset = OffsetEstimate()
        self._last_pulse = time.monotonic()
        self._first_pulse: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closing = False

    @property
    def facts(self) -> Mapping[str, Any]:
        """Facts about the node, as reported by the agent."""
        return self._hello.result().facts

    @property
    def offset(self) -> Offset | None:
        """Current offset of the node's monotonic clock from the controller's; None before the first heartbeat reply."""
        return self._offset.at(time.monotonic_ns())

    async def open(
        self,
        address: str,
        campaign: str,
        on_start: Callable[[int], None],
        power: EnergyModel | None = None,
        meter_lag: MeterLag | None = None,
        shared: bool = False,
    ) -> None:
        """Start the agent and perform the handshake.

        Args:
            address: the node's data address.
            campaign: name of the campaign, for the agent's log.
            on_start: called with the agent's pid if it runs on this host.
            power, meter_lag: energy model of the node and lag of its meter, where known.
            shared: as in `Welcome`.

        Raises:
            AgentKilledError: the agent is killed before it replies.
            RunError: the agent does not start, does not reply in time, or has another protocol version.
        """
        remote = self._remote = await self.transport.start("agents")
        if remote.pid is not None:
            on_start(remote.pid)
        welcome = Welcome(
            version=protocol.VERSION,
            node=self.node,
            address=address,
            folder=self.transport.folder,
            campaign=campaign,
            power=power,
            meter_lag=meter_lag,
            shared=shared,
        )
        listening = asyncio.create_task(self._listen(remote))
        listening.add_done_callback(self._on_listen_done)
        self._tasks.append(listening)
        # If the agent is gone already, waiting for its `Hello` raises a better error.
        with suppress(RunError):
            await self.send(welcome)
        try:
            hello = await asyncio.wait_for(asyncio.shield(self._hello), HELLO_S)
        except TimeoutError:
            raise RunError(f"the agent of {self.node} did not answer within {HELLO_S:.0f} s") from None
        if hello.version != protocol.VERSION:
            raise protocol.other_version(hello.version)
        self._last_pulse = time.monotonic()
        self._tasks.append(asyncio.create_task(self._send_heartbeats()))

    async def first_pulse(self) -> None:
        """Wait for the first heartbeat reply, after which the clock offset is known.

        Raises:
            AgentKilledError: the agent is killed first.
            RunError: the agent is gone for another reason.
        """
        await asyncio.shield(self._first_pulse)

    async def send(self, message: Message) -> None:
        """Send one message.

        Raises:
            RunError: the agent is gone.
        """
        if self._remote is None:
            raise RunError(f"the agent of {self.node} is not running")
        try:
            await self._remote.write(protocol.encode(message))
        except ConnectionError:
            raise RunError(f"the agent of {self.node} is gone") from None

    async def close(self) -> None:
        """Ask the agent to exit, wait up to `BYE_S`, and kill it. May be called at any time and repeatedly.

        An agent that is gone or does not answer any more is killed at once.
        """
        gone, self._closing = self._closing, True
        remote, self._remote = self._remote, None
        if remote is None:
            return
        try:
            if not gone:
                with suppress(ConnectionError, TimeoutError):
                    await asyncio.wait_for(remote.write(protocol.encode(Bye())), BYE_S)
                remote.end_input()
                with suppress(TimeoutError):
                    await asyncio.wait_for(remote.wait(), BYE_S)
        finally:
            remote.kill()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await remote.wait()

    async def _listen(self, remote: Remote) -> None:
        try:
            while line := await remote.read_line():
                arrived_ns = time.monotonic_ns()
                self._handle_report(protocol.decode_report(line), arrived_ns)
            status = await remote.wait()
            kind = AgentKilledError if status < 0 else RunError
            why = kind(f"the agent of {self.node} {ending(status)}")
        except RunError as fault:
            why = RunError(f"the agent of {self.node}: {fault}")
        self._gone(why)

    def _on_listen_done(self, task: asyncio.Task[None]) -> None:
        """Treat the agent as gone when the task that reads its reports has failed."""
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            self._gone(RunError(f"the agent of {self.node}: internal error: {type(fault).__name__}: {fault}"))

    def _handle_report(self, report: Report, arrived_ns: int) -> None:
        """Handle a report.

        Raises:
            RunError: it is inconsistent.
        """
        match report:
            case Hello():
                if not self._hello.done():
                    self._hello.set_result(report)
            case Pulse(sent_ns=sent, received_ns=received, answered_ns=answered):
                if sent > arrived_ns or received > answered:
                    raise RunError(f"a pulse that answers no heartbeat: {report}")
                self._last_pulse = time.monotonic()
                self._offset.add(sent, received, answered, arrived_ns)
                if not self._first_pulse.done():
                    self._first_pulse.set_result(None)
            case _:
                self._on_report(self.node, report)

    async def _send_heartbeats(self) -> None:
        while True:
            silent = time.monotonic() - self._last_pulse
            if silent > SILENCE_S:
                self._gone(RunError(f"the agent of {self.node} has been silent for {silent:.0f} s"))
                return
            with suppress(RunError):
                await self.send(Heartbeat(sent_ns=time.monotonic_ns()))
            await asyncio.sleep(HEARTBEAT_S)

    def _gone(self, why: RunError) -> None:
        has_started = self._hello.done()
        for awaited in (self._hello, self._first_pulse):
            if not awaited.done():
                awaited.set_exception(why)
                # Retrieve it once, so that asyncio does not log an exception that nobody awaits.
                awaited.exception()
        if not self._closing:
            self._closing = True
            # Before the handshake, `open` raises the error instead.
            if has_started:
                self._on_gone(self.node, str(why))
