"""Event loop with virtual time, which passes only while all tasks wait, and then at once.

    async def main(): await asyncio.sleep(3600)
    run_in_virtual_time(main())

The order of tasks depends only on the program; a run can be repeated exactly. Processes and sockets are not waited
for: time passes as soon as they have nothing to read.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _VirtualSelector(selectors.SelectSelector):
    """Selector that advances time instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events:
            return events
        if timeout is None:
            raise RuntimeError("all tasks wait, and nothing will ever happen")
        self.now_s += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop in virtual time, which starts at 0.

    Example:
        >>> async def main() -> float:
        ...     await asyncio.sleep(3600)
        ...     return asyncio.get_running_loop().time()
        >>> run_in_virtual_time(main())
        3600.0
    """

    def __init__(self) -> None:
        self._virtual = _VirtualSelector()
        super().__init__(self._virtual)

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> "asyncio.Future[T]":
        """Run a thread's work immediately; it takes no virtual time."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as fault:  # noqa: BLE001 - who waits for it gets it
            done.set_exception(fault)
        return done

    def time(self) -> float:
        """Return virtual seconds."""
        return self._virtual.now_s


def run_in_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine like `asyncio.run`, in virtual time.

    Raises:
        RuntimeError: all tasks wait, and nothing will ever happen.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
