"""Requested properties of links: a rate and a delay per ordered pair of nodes, from `millrace_links`."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from inventory.documents import Document
from inventory.errors import nearest

EVERYBODY = "*"
"""`to: "*"` means every other node; an entry that names a node takes precedence."""

VARIABLE = "millrace_links"

Rate = Annotated[float, Meta(ge=0.1, le=100_000)]
Delay = Annotated[float, Meta(ge=0, le=10_000)]


class LinkRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of a host's `millrace_links`.

    Attributes:
        to: the host at the other end, or `*`.
        rate_mbit: Mbit/s of wire bytes from the host to `to`; None: unlimited.
        delay_ms: one-way delay in ms from the host to `to`.
    """

    to: str
    rate_mbit: Rate | None = None
    delay_ms: Delay = 0.0


FRAME = 1514
"""Bytes of a full Ethernet frame as counted by rates, from the header to the end of the data."""

_QUEUE_S = 0.010
_SMALLEST_QUEUE = 64 * 1024


class Link(Struct, frozen=True):
    """One direction between two nodes: Mbit/s of wire bytes (None: unlimited) and one-way delay in ms."""

    sender: str
    receiver: str
    rate_mbit: float | None = None
    delay_ms: float = 0.0

    @property
    def bytes_per_s(self) -> float | None:
        """The rate in wire bytes per second."""
        return None if self.rate_mbit is None else self.rate_mbit * 1e6 / 8

    @property
    def queue_bytes(self) -> int:
        """Size of the queue in front of the link, in bytes; 0 for a link without a queue.

        The size is 10 ms of the link's rate, at least 64 KiB, plus one round trip: with less, a single TCP connection
        could not saturate the link.
        """
        if self.bytes_per_s is None:
            return 0
        waiting = max(_QUEUE_S * self.bytes_per_s, _SMALLEST_QUEUE)
        return int(waiting + 2 * self.delay_ms / 1000 * self.bytes_per_s)


def requested_links(document: Document, hosts: Sequence[str]) -> tuple[Link, ...]:
    """Return the links requested by the hosts' `millrace_links`; other pairs are left out.

    Args:
        document: host -> its variables.
        hosts: all hosts of the cluster, in order.

    Raises:
        InputError: an entry is invalid, names an unknown host or the host itself, or a pair is given twice.
    """
    links = []
    for host in hosts:
        given = document.data[host].get(VARIABLE) is not None
        named: dict[str, LinkRequest] = {}
        for number, wish in enumerate(document.convert(list[LinkRequest], (host, VARIABLE)) if given else ()):
            steps = (host, VARIABLE, number, "to")
            if wish.to == host:
                raise document.error(steps, f"{host!r} is the host itself; a link leads to another")
            if wish.to != EVERYBODY and wish.to not in hosts:
                others = [EVERYBODY, *(other for other in hosts if other != host)]
                raise document.error(steps, f"{wish.to!r} is no host of this inventory{nearest(wish.to, others)}")
            if wish.to in named:
                raise document.error(steps, f"the link to {wish.to!r} is given twice")
            named[wish.to] = wish
        for other in hosts:
            found = named.get(other) or named.get(EVERYBODY)
            if other != host and found is not None and (found.rate_mbit is not None or found.delay_ms):
                links.append(Link(host, other, found.rate_mbit, found.delay_ms))
    return tuple(links)
