"""Requests of an inventory for emulated nodes: the machine that each of them presents, and the links between them.

A machine is described by `millrace_emulate`; `millrace_links` has a rate and a delay per ordered pair of nodes.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from inventory.cluster import DEFAULT_RACK, AtLeastOne, Name
from inventory.documents import Origin
from inventory.errors import nearest
from inventory.values import EnergyModel, Positive

LOWEST = 0.4
"""Default lowest clock of a machine, as a fraction of its highest."""

STEPS = 5
"""Number of clocks from lowest to highest, both included."""

Governor = str

Rate = Annotated[float, Meta(ge=0.1, le=100_000)]
"""Mbit/s of wire bytes."""


class EmulatedMachine(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename={"kind": "class"}
):
    """Hardware that the node presents, and the share of this host that it uses.

    Attributes:
        cores: physical cores, over all sockets, without siblings.
        sockets: number of sockets, with equal numbers of cores.
        ghz: highest clock without turbo.
        min_ghz: lowest clock; default `LOWEST` of the highest.
        turbo_ghz: clock enabled by `boost`; None: no turbo.
        share_per_core: cores of this host per core at `ghz`.
        memory_mb: total memory of the node, in MiB.
        disk_mb: maximum size of its files, in MiB of this host's memory.
        nic_mbit: Mbit/s of wire bytes that its interface sends at most, over all links to other nodes; None: unlimited.
        kind: class of the machine, shown in `/proc/cpuinfo` as the model.
        power: energy model of its energy counters.
    """

    cores: Annotated[int, Meta(ge=1, le=256)]
    ghz: Annotated[float, Meta(ge=0.1, le=10)]
    share_per_core: Annotated[float, Meta(ge=0.01, le=1)]
    memory_mb: Annotated[int, Meta(ge=64)]
    sockets: AtLeastOne = 1
    min_ghz: Positive | None = None
    turbo_ghz: Positive | None = None
    disk_mb: Annotated[int, Meta(ge=16)] = 2048
    nic_mbit: Rate | None = None
    kind: Name = "emulated"
    power: EnergyModel = EnergyModel(p_s=10, p_d=30)

    @property
    def share(self) -> float:
        """Cores of this host used by the whole machine at its highest clock without turbo."""
        return self.cores * self.share_per_core

    @property
    def khz(self) -> Sequence[int]:
        """Clocks without turbo in kHz, highest first, in whole MHz."""
        lowest = self.ghz * LOWEST if self.min_ghz is None else self.min_ghz
        gap = (self.ghz - lowest) / (STEPS - 1)
        return [round((self.ghz - at * gap) * 1000) * 1000 for at in range(STEPS)] if gap > 0 else [self.top_khz]

    @property
    def top_khz(self) -> int:
        """Highest clock without turbo."""
        return round(self.ghz * 1000) * 1000

    @property
    def turbo_khz(self) -> int | None:
        """Clock with turbo."""
        return None if self.turbo_ghz is None else round(self.turbo_ghz * 1000) * 1000

    def socket_of(self, core: int) -> int:
        """Return the socket of a core; cores are numbered socket by socket."""
        return core * self.sockets // self.cores


EVERYBODY = "*"
"""`to: "*"` means every other node; an entry that names a node takes precedence."""

VARIABLE = "millrace_links"

RACK = "millrace_rack"

LONGEST_MS = 10_000.0
Delay = Annotated[float, Meta(ge=0, le=LONGEST_MS)]
Formula = Annotated[str, Meta(min_length=1, max_length=200)]


class RackDelays(Struct, frozen=True, forbid_unknown_fields=True):
    """Delays in ms to hosts in the same rack and in others."""

    same_rack: Delay = 0.0
    other_rack: Delay = 0.0


class LinkRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of a host's `millrace_links`.

    Attributes:
        to: the host at the other end, or `*`.
        rate_mbit: Mbit/s of wire bytes from the host to `to`; None: unlimited.
        delay_ms: one-way delay in ms from the host to `to`: a number, a formula of the positions `i` of the host and
            `j` of `to` among all hosts, counted from 0, or delays by rack.
    """

    to: str
    rate_mbit: Rate | None = None
    delay_ms: Delay | Formula | RackDelays = 0.0


FRAME = 1514
"""Bytes of a full Ethernet frame as counted by rates, from the header to the end of the data."""

_QUEUE_S = 0.010
_SMALLEST_QUEUE = 64 * 1024


class LinkSettings(Struct, frozen=True):
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


def requested_links(origin: Origin, hosts: Sequence[str]) -> tuple[LinkSettings, ...]:
    """Return the links requested by the hosts' `millrace_links`; other pairs are left out.

    Args:
        origin: of the hosts' variables: host -> variable -> value.
        hosts: all hosts of the cluster, in order.

    Raises:
        InputError: an entry is invalid, names an unknown host or the host itself, or a pair is given twice.
    """
    links = []
    for at, host in enumerate(hosts):
        given = (origin / host).plain.get(VARIABLE) is not None
        named: dict[str, LinkRequest] = {}
        requests = origin / host / VARIABLE
        for number, request in enumerate(requests.convert(list[LinkRequest]) if given else ()):
            here = requests / number / "to"
            if request.to == host:
                raise here.error(f"{host!r} is the host itself; a link leads to another")
            if request.to != EVERYBODY and request.to not in hosts:
                others = [EVERYBODY, *(other for other in hosts if other != host)]
                raise here.error(f"{request.to!r} is no host of this inventory{nearest(request.to, others)}")
            if request.to in named:
                raise here.error(f"the link to {request.to!r} is given twice")
            named[request.to] = request
        numbers = {to: number for number, to in enumerate(named)}
        for to, other in enumerate(hosts):
            requested = named.get(other) or named.get(EVERYBODY)
            if other == host or requested is None:
                continue
            delay_ms = requested.delay_ms
            if isinstance(delay_ms, RackDelays):
                is_near = _rack(origin / host) == _rack(origin / other)
                delay_ms = delay_ms.same_rack if is_near else delay_ms.other_rack
            elif isinstance(delay_ms, str):
                delay_ms = _evaluated(requests / numbers[requested.to] / "delay_ms", delay_ms, at, to)
            if requested.rate_mbit is not None or delay_ms:
                links.append(LinkSettings(host, other, requested.rate_mbit, delay_ms))
    return tuple(links)


def _rack(host: Origin) -> str:
    return str(host.plain.get(RACK) or DEFAULT_RACK)


def _evaluated(here: Origin, formula: str, i: int, j: int) -> float:
    """Return the delay by a formula, in ms.

    Raises:
        InputError: it is no arithmetic of `i` and `j`, or gives no delay.
    """
    # Imported here, because only a controller needs it.
    from jinja2 import StrictUndefined, TemplateError
    from jinja2.sandbox import SandboxedEnvironment

    got = f"got {formula!r}, expected a number, or arithmetic of i and j with abs, min and max"
    if "**" in formula:
        raise here.error(f"{got}; powers are not allowed")
    environment = SandboxedEnvironment(undefined=StrictUndefined)
    try:
        compiled = environment.compile_expression(formula, undefined_to_none=False)
        value: Any = compiled(i=i, j=j, abs=abs, min=min, max=max)
        delay_ms = float(value)
    except (TemplateError, ArithmeticError, TypeError, ValueError) as fault:
        raise here.error(f"{got} ({fault})") from None
    if not 0 <= delay_ms <= LONGEST_MS:
        raise here.error(f"{formula!r} is {delay_ms:g} for i = {i} and j = {j}, expected 0 to {LONGEST_MS:g}")
    return delay_ms
