"""Traffic shaping of links; the kernel's support is probed by trying, never by reading its configuration.

Where the kernel supports it, a bridge connects the nodes: rates by htb, one class per receiver on the sender's
interface, delays by netem below it. A kernel without netem cannot delay frames; then the relay forwards all frames and
also limits the rates.
"""

import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from inventory.links import FRAME, Link

Shaping = Literal["none", "htb", "netem", "relay"]
"""How a network's links are shaped: not at all, by the kernel (rates only, or rates and delays), or by the relay."""

_PATIENCE_S = 10
_UNLIMITED_MBIT = 100_000
_BURST_S = 0.001
_OCCUPIED_S = 0.0005
_LARGEST_PIECE = 65536


class Kernel(Struct, frozen=True):
    """Traffic control supported by this kernel."""

    htb: bool
    netem: bool


def probe() -> Kernel:
    """Try htb and netem on the loopback interface of a temporary namespace; needs root."""
    return Kernel(
        htb=_takes("root handle 1: htb default 0"),
        netem=_takes("root netem delay 1ms"),
    )


def choose(links: Iterable[Link], ask: Callable[[], Kernel] = probe) -> Shaping:
    """Return how to shape `links`; `ask` returns what the kernel supports, and is only called if there are links."""
    links = list(links)
    if not links:
        return "none"
    kernel = ask()
    if not kernel.htb:
        return "relay"
    if any(link.delay_ms for link in links):
        return "netem" if kernel.netem else "relay"
    return "htb"


def kernel_commands(interface: str, links: Sequence[Link], addresses: Mapping[str, str]) -> list[str]:
    """Return the `tc` commands that shape the links of one sender on its interface.

    Args:
        interface: the sender's interface.
        links: its links.
        addresses: the receivers' addresses by node id.

    Traffic outside of all classes (to the controller, and ARP) is not shaped.
    """
    commands = [f"qdisc add dev {interface} root handle 1: htb default 0"]
    for number, link in enumerate(links, 1):
        rate = link.bytes_per_s or _UNLIMITED_MBIT * 1e6 / 8
        burst = max(2 * FRAME, round(rate * _BURST_S))
        size = f"burst {burst} cburst {burst} quantum {FRAME}"
        to = f"match ip dst {addresses[link.receiver]}/32"
        queue = f"bfifo limit {link.queue_bytes}"
        if link.delay_ms:
            queue = f"netem delay {link.delay_ms:g}ms limit {_frames(link.queue_bytes + link.delay_ms / 1000 * rate)}"
        commands += [
            f"class add dev {interface} parent 1: classid 1:{number:x} htb rate {round(rate * 8)}bit {size}",
            f"qdisc add dev {interface} parent 1:{number:x} handle {number + 1:x}: {queue}",
            f"filter add dev {interface} parent 1: protocol ip prio 1 u32 {to} flowid 1:{number:x}",
        ]
    return commands


def short_sends(interface: str, links: Iterable[Link]) -> str:
    """Return the `ip` command that limits the size of offloaded TCP segments (GSO) of a sender of `links`.

    Segmentation offload passes up to 64 KiB at once to the interface, which is much cheaper than single frames. But
    such a packet occupies its link as a whole and exceeds small queues. Therefore no packet may occupy the slowest link
    for longer than 0.5 ms, or one full frame.
    """
    slowest = min((link.bytes_per_s for link in links if link.bytes_per_s), default=float("inf"))
    frames = max(1, int(min(_OCCUPIED_S * slowest, _LARGEST_PIECE) / FRAME))
    return f"link set dev {interface} gso_max_segs {frames} gso_max_size {frames * FRAME}"


def _frames(count: float) -> int:
    return max(1, round(count / FRAME))


def _takes(qdisc: str) -> bool:
    command = ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", *qdisc.split()]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=_PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
