"""Event loop of a campaign."""

import asyncio
import itertools
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from campaign.runner.event_loop import CampaignEventLoop, in_daemon_thread

TIMEOUT_S = 60.0


async def beat(beats: list[float]) -> None:
    while True:
        beats.append(time.monotonic())
        await asyncio.sleep(0.001)


@pytest.fixture
def loop() -> Iterator[CampaignEventLoop]:
    with CampaignEventLoop() as made:
        yield made


async def start_beats(beats: list[float]) -> asyncio.Task[None]:
    return asyncio.create_task(beat(beats))


def has_more_beats(beats: list[float], count: int) -> bool:
    """Return whether `count` more beats follow while this thread is busy."""
    wanted, deadline = len(beats) + count, time.monotonic() + TIMEOUT_S
    while len(beats) < wanted and time.monotonic() < deadline:
        time.sleep(0.001)
    return len(beats) >= wanted


def test_tasks_continue_between_calls_and_while_the_main_thread_is_busy(loop: CampaignEventLoop) -> None:
    beats: list[float] = []
    loop.run(start_beats(beats))
    for _ in range(3):
        with loop.in_background():
            assert has_more_beats(beats, 3)
        before = len(beats)
        loop.run(asyncio.sleep(0.01))
        assert len(beats) > before


def test_context_managers_are_entered_and_exited_on_the_same_loop_even_after_an_error(loop: CampaignEventLoop) -> None:
    loops: list[object] = []

    @asynccontextmanager
    async def recording() -> AsyncIterator[None]:
        loops.append(asyncio.get_running_loop())
        yield
        loops.append(asyncio.get_running_loop())

    with pytest.raises(ValueError, match="wrong"), loop.within(recording()), loop.in_background():
        raise ValueError("wrong")
    assert len(loops) == 2
    assert loops[0] is loops[1]


def test_interrupted_work_is_cancelled_and_cleans_up(loop: CampaignEventLoop) -> None:
    cleaned_up = []

    async def work() -> None:
        asyncio.get_running_loop().call_soon(interrupt)
        try:
            await asyncio.sleep(TIMEOUT_S)
        finally:
            await asyncio.sleep(0)
            cleaned_up.append(True)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop.run(work())
    assert cleaned_up == [True]
    loop.run(asyncio.sleep(0))


class Interrupting:
    """Trace function that raises KeyboardInterrupt once, at the n-th executed line of the module under test."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: object, event: str, _argument: object) -> "Interrupting":
        if event == "line" and frame.f_code.co_filename == sys.modules[CampaignEventLoop.__module__].__file__:  # type: ignore[attr-defined]
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


def test_an_interrupt_at_any_moment_leaves_a_loop_that_can_be_used_and_closed() -> None:
    for at in itertools.count(1):
        beats: list[float] = []
        with CampaignEventLoop() as loop:
            loop.run(start_beats(beats))
            interrupting = Interrupting(at)
            before = sys.gettrace()
            try:
                sys.settrace(interrupting)
                with loop.in_background():
                    pass
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(before)
            loop.run(asyncio.sleep(0))
        if interrupting.left > 0:
            break
    assert at > 8
    assert not [thread for thread in threading.enumerate() if thread.name == "loop" and thread.is_alive()]


def test_work_that_never_returns_delays_neither_cancellation_nor_shutdown() -> None:
    never = threading.Event()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(in_daemon_thread(never.wait), 0.05)

    with CampaignEventLoop() as loop:
        loop.run(give_up())
    never.set()


def test_results_and_errors_of_work_in_a_daemon_thread_are_passed_on(loop: CampaignEventLoop) -> None:
    assert loop.run(in_daemon_thread(lambda: 3)) == 3
    with pytest.raises(ZeroDivisionError):
        loop.run(in_daemon_thread(lambda: 1 // 0))
