"""Control channel to the agent of one node: start, heartbeat, clock offset, end.

Reports are passed to one callback as they arrive, except for `Hello`, which the channel handles itself. When the agent
ends or stops answering unexpectedly, `on_gone` is called once with the reason. An agent that does not start makes
`open` raise instead.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from agents import protocol
from agents.agent.worker_process import ending
from agents.protocol import HEARTBEAT_S, SILENCE_S, Bye, Heartbeat, Hello, Message, Pulse, Report, Welcome
from controller.coordinator.interfaces import Offset
from controller.nodes.transport import STDERR_LOG, Remote, Transport
from inventory.errors import RunError
from inventory.foreign import printable
from inventory.values import EnergyModel, MeterLag

HELLO_S = 60.0
"""Timeout for the start of an agent; a busy host starts many at once."""

BYE_S = 3.0
"""Time for an agent to clean up and exit before it is killed."""

WINDOW = 60
"""Number of heartbeats kept."""

DRIFT = 100e-6
"""Largest relative drift between two clocks: computer crystals are within 50 ppm of their nominal frequency."""


class AgentKilledError(RunError):
    """An agent was killed by a signal while it started; another attempt may succeed."""


class AgentChannel:
    """The control channel to the agent of one node.

    Attributes:
        node: id of the node.
        transport: transport to its folder.
        gone_reason: why the agent is gone; empty while it is there.
    """

    def __init__(
        self,
        node: str,
        transport: Transport,
        on_report: Callable[[str, Report], None],
        on_gone: Callable[[str, str], None],
    ) -> None:
        """Prepare the channel; the callbacks are those of `attach`."""
        self.node = node
        self.transport = transport
        self.attach(on_report, on_gone)
        self.gone_reason = ""
        self._remote: Remote | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._hello: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()
        self._offset = OffsetEstimate()
        self._last_pulse = time.monotonic()
        self._first_pulse: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closing = False

    def attach(self, on_report: Callable[[str, Report], None], on_gone: Callable[[str, str], None]) -> None:
        """Pass what comes from now on to these callbacks.

        `on_report(node, report)` and `on_gone(node, reason)` are called in the event loop and must not block.
        """
        self._on_report, self._on_gone = on_report, on_gone

    @property
    def is_open(self) -> bool:
        """Whether the agent is there, as far as is known, and is not being ended."""
        return self._remote is not None and not self._closing

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
        gone = RunError(f"the agent of {self.node} is gone")
        if self._closing:
            raise gone
        try:
            await self._remote.write(protocol.encode(message))
        except ConnectionError:
            raise gone from None

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
            complaint = "" if self._hello.done() else await self._complaint()
            why = kind(f"the agent of {self.node} {ending(status)}{complaint}")
        except RunError as fault:
            why = RunError(f"the agent of {self.node}: {fault}")
        self._gone(why)

    async def _complaint(self) -> str:
        """Return `: ` and the last line that an agent without a log file wrote to standard error; empty if none."""
        try:
            async with asyncio.timeout(HELLO_S):
                folder = await self.transport.fetch("", STDERR_LOG)
            text = (folder / STDERR_LOG).read_text(encoding="utf-8", errors="replace")
        except (RunError, OSError):
            return ""
        last = text.rstrip().rpartition("\n")[2]
        return f": {printable(last)}" if last else ""

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
                self._on_report(self.node, report)
            case _:
                self._on_report(self.node, report)

    async def _send_heartbeats(self) -> None:
        while not self._closing:
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
            self._closing, self.gone_reason = True, str(why)
            # Before the handshake, `open` raises the error instead.
            if has_started:
                self._on_gone(self.node, str(why))


class OffsetEstimate:
    """Clock offset of a node, estimated from four timestamps in each of the last `WINDOW` heartbeats.

    The controller sends at t1, the node receives at t2 and answers at t3, the answer arrives at t4 (t1 and t4 on the
    controller's clock). Whatever the delay in each direction, the true offset lies within `bound` of `offset`:

        offset = ((t2 - t1) + (t3 - t4)) / 2        bound = ((t4 - t1) - (t3 - t2)) / 2

    Because clocks drift, the bound of an exchange grows with its age.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[int, Offset]] = deque(maxlen=WINDOW)

    def add(self, sent_ns: int, received_ns: int, answered_ns: int, arrived_ns: int) -> None:
        """Add one exchange: t1, t2, t3, t4 of the class docstring."""
        there, back = received_ns - sent_ns, answered_ns - arrived_ns
        # The clocks also drift between sending and arrival.
        drifted = round((arrived_ns - sent_ns) * DRIFT)
        self._seen.append((arrived_ns, Offset((there + back) // 2, (there - back + 1) // 2 + drifted)))

    def at(self, now_ns: int) -> Offset | None:
        """Return the offset at `now_ns` on the controller's clock from the tightest exchange; None before the first."""
        aged = (
            Offset(seen.offset_ns, seen.bound_ns + round((now_ns - arrived_ns) * DRIFT))
            for arrived_ns, seen in self._seen
        )
        return min(aged, key=lambda offset: offset.bound_ns, default=None)
