"""Event loop of a campaign: one for the whole campaign, so that nodes are reserved once until its end.

The main thread runs one coroutine after another. While the main thread does other work, a background thread runs the
loop, so that heartbeats to the nodes continue.
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
    """Event loop as a context manager. The main thread may be interrupted by an exception at any moment."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._background: _BackgroundThread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_background()
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` beside other tasks; if this thread is interrupted, cancel `work` and wait for its clean-up."""
        self._stop_background()
        task = self._runner.get_loop().create_task(work)
        try:
            return self._runner.run(_result_of(task))
        except BaseException:
            if task.cancel():
                self._runner.run(_end_of(task))
            raise

    @contextmanager
    def within(self, what: AbstractAsyncContextManager[object]) -> Iterator[None]:
        """Enter the asynchronous context manager `what` for the block."""

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
    def in_background(self) -> Iterator[None]:
        """Run the loop in a background thread during the block; the block must not use the loop."""
        self._background = _BackgroundThread(self._runner.get_loop())
        try:
            Thread(target=self._background.run, name="loop", daemon=True).start()
            yield
        finally:
            self._stop_background()

    def _stop_background(self) -> None:
        if self._background is not None:
            self._background.end()


class _BackgroundThread:
    """Thread that runs the loop. It may be ended at any time, also before the thread has started."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._over = asyncio.Event()
        self._wanted = True
        # Reentrant: the main thread may be interrupted while it holds the lock, and acquires it again.
        self._held = RLock()

    def run(self) -> None:
        with self._held:
            if self._wanted:
                self._loop.run_until_complete(self._over.wait())

    def end(self) -> None:
        """Stop the loop; return when the thread has released it."""
        self._wanted = False
        self._loop.call_soon_threadsafe(self._over.set)
        with self._held:
            pass


async def in_daemon_thread(work: Callable[[], T]) -> T:
    """Run `work` in a daemon thread; after cancellation the thread is abandoned, since `work` may never return."""
    future: Future[T] = Future()

    def do() -> None:
        future.set_running_or_notify_cancel()
        try:
            future.set_result(work())
        except Exception as fault:  # noqa: BLE001 - raised where the result is awaited
            future.set_exception(fault)

    Thread(target=do, name="deciding", daemon=True).start()
    return await asyncio.wrap_future(future)


async def _result_of(task: asyncio.Task[T]) -> T:
    return await asyncio.shield(task)


async def _end_of(task: asyncio.Task[T]) -> None:
    await asyncio.wait([task])
