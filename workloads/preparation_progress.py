"""Who is told how far the preparation of an input has come: an operator waits for a large one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[float], None]
"""Is called with the share that is done, 0..1."""


def _nobody(_share: float) -> None:
    pass


_LISTENER: ContextVar[Listener] = ContextVar("listener", default=_nobody)


def tell(share: float) -> None:
    """Say that `share` of what is being prepared is done; for `Workload.prepare`."""
    _LISTENER.get()(share)


@contextmanager
def told(listener: Listener) -> Iterator[None]:
    """Yield inside the block, `listener` is who is told."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)
