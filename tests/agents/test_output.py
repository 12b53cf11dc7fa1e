"""An agent never waits for a controller that does not read, and loses nothing that matters."""

import asyncio
import os

from agents import protocol
from agents.protocol import Exhausted, Progress, Work
from agents.protocol.writer import Output


def _read_all(source: int) -> list[protocol.Report]:
    with os.fdopen(source, "rb") as pipe:
        return [protocol.decode_report(line) for line in pipe]


def test_reports_wait_in_order_and_only_progress_is_dropped_when_nobody_reads():
    source, target = os.pipe()
    rounds = 20_000

    async def talk() -> list[protocol.Report]:
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

    received = asyncio.run(talk())
    kept = [report.epoch for report in received if isinstance(report, Exhausted)]
    assert kept == list(range(rounds))
    assert 0 < len(received) - rounds < rounds


def test_a_reader_that_is_gone_is_noticed_once_and_nothing_is_raised():
    source, target = os.pipe()
    os.close(source)
    lost = []

    async def talk() -> None:
        output = Output(target)
        output.on_lost = lambda: lost.append(True)
        for number in range(3):
            output.send(Exhausted(epoch=number, slot=0))
        await output.flush()
        os.close(target)

    asyncio.run(talk())
    assert lost == [True]
