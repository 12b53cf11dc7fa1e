"""Which sockets are ready: as quick with a hundred links as with one, and with time-outs of microseconds.

select() keeps microseconds, but takes all descriptors in every call; epoll does not, but its interface in Python rounds
time-outs up to milliseconds. So select() does the waiting, for the one descriptor by which epoll says that it has
something.
"""

import select
import selectors


class Selector(selectors.EpollSelector):
    """A selector as those of the standard library."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """See `selectors.BaseSelector.select`."""
        if timeout is not None and timeout > 0:
            ready, _, _ = select.select((self,), (), (), timeout)
            if not ready:
                return []
            timeout = 0
        return super().select(timeout)
