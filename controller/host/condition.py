"""Condition variable for asyncio, and helpers that run steps at once, under supervision, or to their end."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class Condition:
    """Condition variable for asyncio; every notification wakes all waiters, which check their predicate again."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake all waiters."""
        self._event.set()

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds."""
        while not condition():
            self._event.clear()
            await self._event.wait()

    async def wait_until(self, at_s: float | None, condition: Callable[[], bool]) -> bool:
        """Wait for `condition` until `at_s` on the event loop's clock; return whether it holds."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(at_s):
                await self.wait_for(condition)
        return condition()


async def run_watched(step: Awaitable[object], watch: Awaitable[None]) -> None:
    """Await `step`; cancel it and raise when `watch`, which never returns, raises first.

    When both have ended, the error of `watch` counts: it usually names the cause of the step's error.
    """
    doing, watching = asyncio.ensure_future(step), asyncio.ensure_future(watch)
    try:
        await asyncio.wait({doing, watching}, return_when=asyncio.FIRST_COMPLETED)
        await (watching if watching.done() else doing)
    finally:
        for task in (doing, watching):
            task.cancel()
        await asyncio.gather(doing, watching, return_exceptions=True)


async def run_together(steps: Iterable[Awaitable[None]]) -> None:
    """Run all steps concurrently; after all have ended, raise the first error."""
    for outcome in await asyncio.gather(*steps, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


async def run_to_end(step: Awaitable[T]) -> T:
    """Await `step` to its end, for clean-up; a cancellation that comes meanwhile is raised afterwards.

    `asyncio.shield` alone would return at once, and the step would end later, when nobody awaits it.
    """
    task = asyncio.ensure_future(step)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        _ = task.cancelled() or task.exception()  # retrieved: the cancellation counts
        raise asyncio.CancelledError
    return task.result()
