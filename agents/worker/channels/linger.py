"""The time that rows of an incomplete batch wait for others, which follows the load of both workers of a channel.

A worker that is idle sends rows at once: nothing else would join them. A busy one lets them wait, because larger
batches cost less CPU time per row, for it and for their receivers. Its wait is a function of its utilisation, so that a
load has one wait, whatever the load was before. A worker announces its wait to its peers; on a channel the longer wait
of both workers applies, because an idle sender would otherwise overload a busy receiver with small batches.

Within a worker a batch costs neither codec nor link: rows wait there only while hardly any time is left.

A fixed wait is the same for all channels, and announced to nobody.
"""

from collections import deque
from typing import Protocol

MAX_LINGER_NS = 2_000_000
"""Longest adaptive wait; it bounds the latency of a channel at all rates."""

_LEAST_LINGER_NS = 30_000
"""Shorter waits cost more in timers than they save."""

IDLE, BUSY = 0.25, 0.75
"""Utilisations up to which rows to other workers do not wait, and from which they wait longest."""

LOCAL_IDLE, LOCAL_BUSY = 0.85, 0.95
"""The same of rows within the worker."""

_LOCAL = -1
"""Key of channels within the worker, beside the numbers of peers."""

_WINDOW_NS = 4_000_000
"""Shortest time over which utilisation is measured."""

MEMORY_NS = 16_000_000
"""Time constant with which older utilisation is forgotten."""


class Waiting(Protocol):
    """A channel end that may hold rows; `since_ns` is when it got the first of them."""

    since_ns: int

    @property
    def is_local(self) -> bool:
        """True if the receiver is in the same worker."""
        ...

    @property
    def peer(self) -> int:
        """Number of the receiver's worker."""
        ...

    @property
    def is_empty(self) -> bool:
        """True if it holds no rows."""
        ...

    def flush(self) -> None:
        """Send all rows that the credit allows."""
        ...


class Linger:
    """The wait of one worker, from the times at which it sleeps.

    Attributes:
        ns, local_ns: the wait of rows to other workers now, and of rows within the worker.
        is_adaptive: whether it follows the utilisation.
        utilisation: fraction of the recent time in which the worker did not sleep.
    """

    def __init__(self, fixed_ns: int | None = None) -> None:
        """Create it; None: it adapts."""
        self.is_adaptive = fixed_ns is None
        self.ns = self.local_ns = fixed_ns or 0
        self.utilisation = 0.0
        self._since_ns: int | None = None
        self._asleep_ns = 0

    def update(self, now_ns: int, slept_ns: int) -> bool:
        """Count a pass that begins at `now_ns`, after a sleep of `slept_ns`; return whether the wait was reviewed."""
        self._asleep_ns += slept_ns
        if self._since_ns is None:
            self._since_ns, self._asleep_ns = now_ns, 0
        span = now_ns - self._since_ns
        if not self.is_adaptive or span < _WINDOW_NS:
            return False
        self.utilisation += (1 - self._asleep_ns / span - self.utilisation) * span / (span + MEMORY_NS)
        self._since_ns, self._asleep_ns = now_ns, 0
        self.ns = linger_ns(self.utilisation)
        self.local_ns = linger_ns(self.utilisation, LOCAL_IDLE, LOCAL_BUSY)
        return True


def linger_ns(utilisation: float, idle: float = IDLE, busy: float = BUSY) -> int:
    """Return how long rows wait in a worker that sleeps for 1 - `utilisation` of the time.

    They do not wait up to `idle`, and longest from `busy` on.

    >>> [linger_ns(each / 10) // 1000 for each in (2, 4, 5, 6, 8)]
    [0, 180, 500, 980, 2000]
    """
    share = min(1.0, max(0.0, (utilisation - idle) / (busy - idle)))
    wait = round(MAX_LINGER_NS * share * share)
    return wait if wait >= _LEAST_LINGER_NS else 0


class FlushTimer:
    """Flushes channels whose rows have waited long enough; `now_ns` is the event loop's cached clock.

    Attributes:
        linger: of this worker.
        peers_ns: waits that other workers have announced, by number.
    """

    def __init__(self, linger_ns: int | None = None) -> None:
        """Create it with a fixed wait, or None: it adapts."""
        self.now_ns = 0
        self.linger = Linger(linger_ns)
        self.peers_ns: dict[int, int] = {}
        # By peer or `_LOCAL`, only those with entries.
        self._waiting: dict[int, deque[tuple[int, Waiting]]] = {}

    def watch(self, channel: Waiting) -> int:
        """Note that `channel` holds its first row from now on; return the time."""
        key = _LOCAL if channel.is_local else channel.peer
        queue = self._waiting.get(key)
        if queue is None:
            queue = self._waiting[key] = deque()
        queue.append((self.now_ns, channel))
        return self.now_ns

    def is_old(self, channel: Waiting) -> bool:
        """Return whether the rows of `channel` must be sent."""
        return channel.since_ns <= self.now_ns - self._wait_ns(_LOCAL if channel.is_local else channel.peer)

    @property
    def flushes_at_once(self) -> bool:
        """True if rows are waiting that this worker lets not wait, whatever their receivers say."""
        return bool(self._waiting) and (not self.linger.ns or (not self.linger.local_ns and _LOCAL in self._waiting))

    def flush_old(self) -> None:
        """Send rows that have waited long enough."""
        for peer in list(self._waiting):
            queue = self._waiting[peer]
            until_ns = self.now_ns - self._wait_ns(peer)
            while queue and queue[0][0] <= until_ns:
                since_ns, channel = queue.popleft()
                if channel.since_ns == since_ns and not channel.is_empty:
                    channel.flush()
            if not queue:
                del self._waiting[peer]

    @property
    def next_ns(self) -> int | None:
        """Time at which the next rows have waited long enough; None while no channel holds any."""
        return min([queue[0][0] + self._wait_ns(peer) for peer, queue in self._waiting.items()], default=None)

    def _wait_ns(self, peer: int) -> int:
        if peer == _LOCAL:
            return self.linger.local_ns
        return max(self.linger.ns, self.peers_ns.get(peer, 0))
