"""The event loop of a campaign: one for all of it, so that nodes are taken once and stay ours until the end.

The main thread asks it for one thing after the other. While that thread is busy otherwise, another one lets the loop
turn, so that nodes go on being told that we are here.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from threading import RLock, Thread
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class CampaignEventLoop:
    """An event loop, as a context manager. The main thread may be interrupted by an exception at any moment."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._turning: _Turning | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rest()
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work`, and let other tasks go on; when this thread is interrupted, `work` is cancelled and tidies up."""
        self._rest()
        task = self._runner.get_loop().create_task(work)
        try:
            return self._runner.run(_result_of(task))
        except BaseException:
            if task.cancel():
                self._runner.run(_end_of(task))
            raise

    @contextmanager
    def within(self, what: AbstractAsyncContextManager[object]) -> Iterator[None]:
        """Enter `what` for the block."""

        async def enter() -> None:
            await what.__aenter__()

        async def leave() -> None:
            await what.__aexit__(None, None, None)

        self.run(enter())
        try:
            yield
        finally:
            self.run(leave())

    @contextmanager
    def turning(self) -> Iterator[None]:
        """Let tasks go on in a thread during the block, in which nobody uses the loop."""
        self._turning = _Turning(self._runner.get_loop())
        try:
            Thread(target=self._turning.turn, name="loop", daemon=True).start()
            yield
        finally:
            self._rest()

    def _rest(self) -> None:
        if self._turning is not None:
            self._turning.end()


class _Turning:
    """A thread's turn with the loop. It may be ended at any time, also before the thread has come to begin."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._over = asyncio.Event()
        self._wanted = True
        # The main thread may be interrupted while it holds it, and comes again.
        self._held = RLock()

    def turn(self) -> None:
        with self._held:
            if self._wanted:
                self._loop.run_until_complete(self._over.wait())

    def end(self) -> None:
        """Return when the loop is free."""
        self._wanted = False
        self._loop.call_soon_threadsafe(self._over.set)
        with self._held:
            pass


async def in_daemon_thread(work: Callable[[], T]) -> T:
    """Do `work`, which may never return, in a thread that nobody waits for once this is cancelled."""
    result: Future[T] = Future()

    def do() -> None:
        result.set_running_or_notify_cancel()
        try:
            result.set_result(work())
        except Exception as fault:  # noqa: BLE001 - raised where the result is awaited
            result.set_exception(fault)

    Thread(target=do, name="deciding", daemon=True).start()
    return await asyncio.wrap_future(result)


async def _result_of(task: asyncio.Task[T]) -> T:
    return await asyncio.shield(task)


async def _end_of(task: asyncio.Task[T]) -> None:
    await asyncio.wait([task])
