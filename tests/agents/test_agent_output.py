"""Output of an agent: never waits for a controller that does not read, and drops only progress.

Lines are complete wherever the pipe splits the stream.
"""

import asyncio
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import protocol
from agents.protocol import Exhausted, Progress, Work, lines
from agents.protocol.lines import LineSplitter, Output
from inventory.errors import RunError


def _read_all(source: int) -> list[protocol.Report]:
    with os.fdopen(source, "rb") as pipe:
        return [protocol.decode_report(line) for line in pipe]


def test_reports_wait_in_order_and_only_progress_is_dropped_when_nobody_reads(monkeypatch):
    monkeypatch.setattr(lines, "FLUSH_S", 60.0)  # what is lost must not depend on the speed of this machine
    source, target = os.pipe()
    rounds = 20_000

    async def send_reports() -> list[protocol.Report]:
        output = Output(target)
        for number in range(rounds):
            output.send(Exhausted(epoch=number, slot=0))
            executors = {"x" * 200: Work(1, 2, 3, 4, 5)}
            output.send(Progress(epoch=number, slot=0, at_ns=0, emitted=1, sunk=1, executors=executors))
        reading = asyncio.to_thread(_read_all, source)
        task = asyncio.ensure_future(reading)
        await output.flush()
        os.close(target)
        return await task

    received = asyncio.run(send_reports())
    kept = [report.epoch for report in received if isinstance(report, Exhausted)]
    assert kept == list(range(rounds))
    assert 0 < len(received) - rounds < rounds


def test_a_reader_that_is_gone_is_noticed_once_and_nothing_is_raised():
    source, target = os.pipe()
    os.close(source)
    lost = []

    async def send_reports() -> None:
        output = Output(target)
        output.on_lost = lambda: lost.append(True)
        for number in range(3):
            output.send(Exhausted(epoch=number, slot=0))
        await output.flush()
        os.close(target)

    asyncio.run(send_reports())
    assert lost == [True]


@given(st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b"")), max_size=20), st.data())
def test_any_split_of_a_stream_gives_the_same_lines(lines, data):
    stream = b"".join(line + b"\n" for line in lines) + b"unfinished"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    splitter = LineSplitter()
    got = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += splitter.feed(stream[begin:end])
    assert got == [line for line in lines if line]


@pytest.mark.parametrize("pieces", [[b"x" * 11], [b"x" * 6, b"x" * 5], [b"ok\n" + b"x" * 11 + b"\n"]])
def test_a_line_longer_than_allowed_is_refused(pieces):
    lines = LineSplitter(longest=10)
    *first, last = pieces
    for piece in first:
        assert lines.feed(piece) == []
    with pytest.raises(RunError, match="more than 10 bytes"):
        lines.feed(last)


def test_a_line_of_just_the_allowed_length_passes():
    assert LineSplitter(longest=10).feed(b"x" * 10 + b"\n") == [b"x" * 10]
