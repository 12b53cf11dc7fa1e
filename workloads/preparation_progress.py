"""Progress reports while an input is prepared."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[float], None]
"""Called with the completed share, 0..1."""


def _nobody(_share: float) -> None:
    pass


_LISTENER: ContextVar[Listener] = ContextVar("listener", default=_nobody)


def report_progress(share: float) -> None:
    """Report that `share` of the preparation is done; for `Workload.prepare`."""
    _LISTENER.get()(share)


@contextmanager
def reporting_to(listener: Listener) -> Iterator[None]:
    """Send progress reports to `listener` inside the block."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)
