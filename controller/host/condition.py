"""Waiting for a condition: everybody who waits looks again whenever something has happened."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress


class Condition:
    """A signal without content."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        """Something has happened."""
        self._event.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when `condition` holds."""
        while not condition():
            self._event.clear()
            await self._event.wait()

    async def by(self, at_s: float | None, condition: Callable[[], bool]) -> bool:
        """Wait for `condition`, but not beyond `at_s` of the event loop's clock; return whether it holds."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(at_s):
                await self.until(condition)
        return condition()


async def unless(step: Awaitable[None], watch: Awaitable[None]) -> None:
    """Await `step`, but give it up when `watch`, which never returns, raises; what either raises is raised.

    When both are over, `watch` is the one that counts: what breaks a step often explains itself a moment later.
    """
    doing, watching = asyncio.ensure_future(step), asyncio.ensure_future(watch)
    try:
        await asyncio.wait({doing, watching}, return_when=asyncio.FIRST_COMPLETED)
        await (watching if watching.done() else doing)
    finally:
        for task in (doing, watching):
            task.cancel()
        await asyncio.gather(doing, watching, return_exceptions=True)


async def all_of(steps: Iterable[Awaitable[None]]) -> None:
    """Do all steps at once; when some fail, raise the first failure after all have ended."""
    for outcome in await asyncio.gather(*steps, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
