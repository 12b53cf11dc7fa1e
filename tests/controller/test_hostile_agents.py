"""Hostile agents on real pipes: whatever they send, the controller reports them at once and keeps running."""

import asyncio
import json
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import protocol
from agents.protocol import VERSION, Report
from controller.nodes.agent_channel import AgentChannel
from controller.nodes.transport import LoopbackTransport, Remote
from inventory.errors import RunError

TIMEOUT_S = 60.0
REPORT_S = 5.0
"""Timeouts allow for a machine five times slower; the report takes less than a second."""

DEEP = "[" * 100_000
HUGE = "9" * 40


def hello(**facts: Any) -> str:
    return json.dumps({"type": "hello", "version": VERSION, "pid": 1, "python": "3", "facts": {"clock": None} | facts})


HELLOS = {
    "nested facts": hello(cpu_model=[[[["x"]]]]),
    "facts without an end": hello()[:-3] + f', "a": {DEEP}',
    "numbers beyond 64 bits": hello(memory_bytes=int(HUGE)),
    "thousands of facts": hello(**{str(number): number for number in range(5000)}),
    "a clock that is no name": hello(clock=["x", ["y"]]),
    "a pid of thousands of digits": hello().replace('"pid": 1', '"pid": ' + "9" * 5000),
    "half a character": hello().replace('"3"', r'"\ud800"'),
    "a version of forty digits": hello().replace(f'"version": {VERSION}', f'"version": {HUGE}'),
    "only brackets": DEEP,
}

LATER_REPORTS = {
    "nested without an end": '{"type": "vitals", "epoch": 1, "x": ' + DEEP,
    "nested where a number belongs": '{"type": "vitals", "epoch": 1, "cores": ' + DEEP,
    "an epoch of forty digits": f'{{"type": "vitals", "epoch": {HUGE}}}',
    "a time of forty digits": f'{{"type": "pulse", "sent_ns": 1, "received_ns": {HUGE}, "answered_ns": {HUGE}}}',
    "a negative count": '{"type": "progress", "epoch": 1, "slot": 0, "at_ns": 1, "emitted": -1, "sunk": 1}',
    "a number that is infinite": '{"type": "vitals", "epoch": 1, "cores": 1e999}',
    "a pulse from the future": f'{{"type": "pulse", "sent_ns": {2**60}, "received_ns": 1, "answered_ns": 1}}',
    "a port that is none": '{"type": "listening", "epoch": 1, "slot": 0, "pid": 1, "port": 65536}',
    "bytes that are no text": "\udcff\udcfe",
    "an unknown type": '{"type": "root", "epoch": 1}',
    "a list": "[1, 2]",
    "null": "null",
}


class HostileAgentTransport(LoopbackTransport):
    """Transport that starts a program in place of an agent: it writes one line, and another one after a Mark."""

    def __init__(self, folder: Path, first: str, second: str = "") -> None:
        super().__init__(folder)
        (folder / "first").write_bytes(first.encode(errors="surrogateescape") + b"\n")
        (folder / "second").write_bytes(second.encode(errors="surrogateescape") + b"\n")
        (folder / "pretended_agent.py").write_text(
            "import os, sys\n"
            "def say(name): os.write(1, open(name, 'rb').read())\n"
            "say('first')\n"
            "while b'mark' not in sys.stdin.buffer.readline(): pass\n"
            "say('second')\n"
            "sys.stdin.buffer.read()\n"
        )

    async def start(self, module: str) -> Remote:
        return await super().start("pretended_agent")


def run(step: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(step, TIMEOUT_S))


async def opened(
    transport: LoopbackTransport, gone: "asyncio.Future[str]", on_report: Any = lambda *_: None
) -> AgentChannel:
    channel = AgentChannel("n1", transport, on_report, lambda _node, reason: gone.set_result(reason))
    await channel.open("127.0.0.1", "test", lambda _pid: None)
    return channel


@pytest.mark.parametrize("line", HELLOS.values(), ids=HELLOS.keys())
def test_a_hello_that_cannot_be_read_is_refused_with_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    async def live() -> None:
        channel = AgentChannel("n1", HostileAgentTransport(tmp_path, line), lambda *_: None, lambda *_: None)
        try:
            with pytest.raises(RunError, match=f"the agent of n1: not a report of control protocol {VERSION}: "):
                await channel.open("127.0.0.1", "test", lambda _pid: None)
        finally:
            await channel.close()

    run(live())


@pytest.mark.parametrize("line", LATER_REPORTS.values(), ids=LATER_REPORTS.keys())
def test_an_invalid_report_ends_its_agent_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    async def live() -> None:
        gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        channel = await opened(HostileAgentTransport(tmp_path, hello(), line), gone)
        try:
            begin_s = time.monotonic()
            await channel.send(protocol.Mark(epoch=1, kind="now"))
            reason = await gone
            assert time.monotonic() - begin_s < REPORT_S
            assert reason.startswith(("the agent of n1: not a report of", "the agent of n1: a pulse that answers no"))
            assert len(reason) < 1000
        finally:
            await channel.close()

    run(live())


def test_an_agent_whose_report_crashes_the_handler_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def on_report(_node: str, _report: Report) -> None:
        raise ZeroDivisionError("of somebody else")

    async def live() -> None:
        gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        channel = await opened(
            HostileAgentTransport(tmp_path, hello(), '{"type": "finished", "epoch": 1}'), gone, on_report
        )
        try:
            await channel.send(protocol.Mark(epoch=1, kind="now"))
            assert await gone == "the agent of n1: internal error: ZeroDivisionError: of somebody else"
        finally:
            await channel.close()

    run(live())


REPORTS = list(Report.__args__)
NUMBERS = st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | st.just(int(HUGE))
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@st.composite
def almost_reports(draw: st.DrawFn) -> bytes:
    """Generate a report with the right fields and arbitrary values."""
    kind = draw(st.sampled_from(REPORTS))
    content: dict[str, Any] = {"type": msgspec.inspect.type_info(kind).tag}
    for entry in msgspec.structs.fields(kind):
        content[entry.encode_name] = draw(st.sampled_from([0, 1, "x", {}, []]) | ANYTHING)
    return json.dumps(content).encode()


def numbers(value: Any) -> list[int]:
    if isinstance(value, dict):
        return [found for pair in value.items() for each in pair for found in numbers(each)]
    if isinstance(value, list):
        return [found for each in value for found in numbers(each)]
    return [value] if isinstance(value, int) else []


@given(st.binary(max_size=50) | ANYTHING.map(lambda value: json.dumps(value).encode()) | almost_reports())
def test_any_line_is_a_report_of_numbers_within_64_bits_or_an_error(line: bytes) -> None:
    try:
        report = protocol.decode_report(line)
    except RunError:
        return
    assert all(-(2**63) <= number < 2**63 for number in numbers(msgspec.to_builtins(report, str_keys=False)))
    protocol.encode(report)
