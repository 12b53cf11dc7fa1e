"""Network of an emulated cluster: one namespace per node, one for the controller, and one for the switch.

The host's interfaces, routes and firewall are never changed. Every name starts with the network's prefix, which has a
random part, and is recorded before the namespace is created. Taking the network down ends all processes in its
namespaces and removes these with everything in them.

Links are shaped as the kernel's support allows, which is probed by trying, never by reading its configuration. With it,
a bridge connects the nodes: rates by htb, one class per receiver on the sender's interface, delays by netem below it.
The classes of a limited interface share its rate. A kernel without netem cannot delay frames; then the relay forwards
all frames and also limits the rates.
"""

import math
import secrets
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from ipaddress import IPv4Address
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

from msgspec import Struct
from msgspec.structs import replace

from controller.emulation.relay import LinkShape, NicShape, RelayPlan, Tap, start_relay
from controller.host.namespaces import NAMESPACES, ip, remove_namespace, tc
from inventory.emulation import FRAME, LinkSettings
from inventory.errors import InputError, RunError

Shaping = Literal["none", "htb", "netem", "relay"]
"""Shaping of a network's links: not at all, by the kernel (rates only, or rates and delays), or by the relay."""

_PATIENCE_S = 10
_UNLIMITED_MBIT = 100_000
_NIC_CLASS = "1:ffff"
_BURST_S = 0.001
_OCCUPIED_S = 0.0005
_LARGEST_PIECE = 65536

INTERFACE = "eth0"
PREFIX_LENGTH = 24
_NETWORK = int(IPv4Address("10.77.0.0"))
_CONTROLLER = 254


class Kernel(Struct, frozen=True):
    """Traffic control supported by this kernel."""

    htb: bool
    netem: bool


def probe_kernel() -> Kernel:
    """Try htb and netem on the loopback interface of a temporary namespace; needs root."""
    return Kernel(
        htb=_takes("root handle 1: htb default 0"),
        netem=_takes("root netem delay 1ms"),
    )


def choose_shaping(links: Iterable[LinkSettings], ask: Callable[[], Kernel] = probe_kernel) -> Shaping:
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


def kernel_commands(
    interface: str, links: Sequence[LinkSettings], addresses: Mapping[str, str], nic_mbit: float | None = None
) -> list[str]:
    """Return the `tc` commands that shape the links of one sender on its interface.

    Args:
        interface: the sender's interface.
        links: its links.
        addresses: the receivers' addresses by node id.
        nic_mbit: rate of all links together; None: unlimited.

    Traffic outside of all classes (to the controller, and ARP) is not shaped.
    """
    commands = [f"qdisc add dev {interface} root handle 1: htb default 0"]
    parent, ceiling, fair = "1:", "", float("inf")
    if nic_mbit is not None:
        whole = nic_mbit * 1e6 / 8
        parent, fair = _NIC_CLASS, whole / max(1, len(links))
        limit = f"htb rate {round(whole * 8)}bit {_sizes(whole)}"
        commands.append(f"class add dev {interface} parent 1: classid {parent} {limit}")
    for number, link in enumerate(links, 1):
        rate = link.bytes_per_s or _UNLIMITED_MBIT * 1e6 / 8
        if nic_mbit is not None:
            # The rates of classes below another one are guaranteed: only beyond them they share the rate of that one.
            ceiling = f" ceil {round(rate * 8)}bit"
        shape = f"htb rate {round(min(rate, fair) * 8)}bit{ceiling} {_sizes(rate)}"
        to = f"match ip dst {addresses[link.receiver]}/32"
        queue = f"bfifo limit {link.queue_bytes}"
        if link.delay_ms:
            queue = f"netem delay {link.delay_ms:g}ms limit {_frames(link.queue_bytes + link.delay_ms / 1000 * rate)}"
        commands += [
            f"class add dev {interface} parent {parent} classid 1:{number:x} {shape}",
            f"qdisc add dev {interface} parent 1:{number:x} handle {number + 1:x}: {queue}",
            f"filter add dev {interface} parent 1: protocol ip prio 1 u32 {to} flowid 1:{number:x}",
        ]
    return commands


def short_sends(interface: str, links: Iterable[LinkSettings]) -> str:
    """Return the `ip` command that limits the size of offloaded TCP segments (GSO) of a sender of `links`.

    Segmentation offload passes up to 64 KiB at once to the interface, which is much cheaper than single frames. But
    such a packet occupies its link as a whole and exceeds small queues. Therefore no packet may occupy the slowest link
    for longer than 0.5 ms, or one full frame.
    """
    slowest = min((link.bytes_per_s for link in links if link.bytes_per_s), default=float("inf"))
    frames = max(1, int(min(_OCCUPIED_S * slowest, _LARGEST_PIECE) / FRAME))
    return f"link set dev {interface} gso_max_segs {frames} gso_max_size {frames * FRAME}"


def _sizes(bytes_per_s: float) -> str:
    burst = max(2 * FRAME, round(bytes_per_s * _BURST_S))
    return f"burst {burst} cburst {burst} quantum {FRAME}"


def _frames(count: float) -> int:
    return max(1, round(count / FRAME))


def _takes(qdisc: str) -> bool:
    command = ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", *qdisc.split()]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=_PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


class Endpoint(Struct, frozen=True):
    """Network settings of a node or of the controller.

    Attributes:
        name: the node's id; `ctl` for the controller.
        number: last part of its address.
        namespace: name of its network namespace, as in `ip netns`.
        interface: its interface to the other nodes.
        address: its address on that interface, in a network of `PREFIX_LENGTH` bits.
    """

    name: str
    number: int
    namespace: str
    interface: str
    address: str

    @property
    def path(self) -> Path:
        """The file by which the namespace is entered (`nsenter --net=`, `controller.host.namespaces.enter`)."""
        return NAMESPACES / self.namespace

    @property
    def mac(self) -> str:
        """Its MAC address; the last byte is its number, by which the relay identifies it."""
        return f"02:00:00:00:01:{self.number:02x}"


class NetworkPlan(Struct, frozen=True):
    """Plan of a network.

    Attributes:
        prefix: prefix of every name; see `new_prefix`.
        nodes: ids of the nodes; node i, counted from 1, gets the address 10.77.0.i.
        links: links with a limit or a delay; all others, and those of the controller, have neither.
        nics: node -> Mbit/s that its interface sends at most, over all links to other nodes.
    """

    prefix: str
    nodes: tuple[str, ...]
    links: tuple[LinkSettings, ...] = ()
    nics: Mapping[str, float] = {}

    def shaped_from(self, sender: str) -> list[LinkSettings]:
        """Return the links of a node that are shaped.

        These are its links of the plan and, if its interface is limited, those to all nodes, none of them faster than
        the interface.
        """
        own = [link for link in self.links if link.sender == sender]
        nic_mbit = self.nics.get(sender)
        if nic_mbit is None:
            return own
        linked = {sender, *(link.receiver for link in own)}
        others = [LinkSettings(sender, name) for name in self.nodes if name not in linked]
        return [replace(link, rate_mbit=min(link.rate_mbit or nic_mbit, nic_mbit)) for link in (*own, *others)]

    def endpoint(self, name: str) -> Endpoint:
        """Return the network settings of node `name`."""
        return self._endpoint(name, self.nodes.index(name) + 1, str(self.nodes.index(name) + 1))

    @property
    def controller(self) -> Endpoint:
        """Network settings of the controller, which has its own namespace and the address 10.77.0.254."""
        return self._endpoint("ctl", _CONTROLLER, "ctl")

    @property
    def switch(self) -> str:
        """Name of the namespace that connects the others by a bridge or the relay."""
        return f"{self.prefix}-sw"

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Names of all namespaces, the switch's last."""
        ends = [self.endpoint(name) for name in self.nodes]
        return (*(end.namespace for end in ends), self.controller.namespace, self.switch)

    def _endpoint(self, name: str, number: int, suffix: str) -> Endpoint:
        return Endpoint(name, number, f"{self.prefix}-{suffix}", INTERFACE, str(IPv4Address(_NETWORK + number)))


class NetworkLedger(Protocol):
    """Record of namespaces, written before they are created, so that they can be cleaned up after a crash."""

    def namespace(self, name: str) -> None:
        """Record a network namespace that is about to be created."""
        ...


def new_prefix() -> str:
    """Return a unique prefix: `mr` and eight random hexadecimal digits."""
    return f"mr{secrets.token_hex(4)}"


class EmulatedNetwork:
    """The network of one emulated cluster, from `up` to `down`.

    >>> plan = NetworkPlan(new_prefix(), ("n1", "n2"), (Link("n1", "n2", rate_mbit=100, delay_ms=1),))
    >>> with EmulatedNetwork(plan, ledger, log) as network:  # doctest: +SKIP
    ...     subprocess.run(["nsenter", f"--net={network.nodes['n1'].path}", "ip", "addr"])

    `down` needs only the plan, so that another process can take the network down. `log` is the log file of the relay,
    if there is one.
    """

    def __init__(self, plan: NetworkPlan, ledger: NetworkLedger, log: Path) -> None:
        if len(plan.nodes) >= _CONTROLLER:
            raise InputError(f"{len(plan.nodes)} nodes: an emulated network holds at most {_CONTROLLER - 1}")
        self.plan = plan
        self._ledger = ledger
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @cached_property
    def nodes(self) -> dict[str, Endpoint]:
        """Network settings of the nodes by id, in the order of the plan."""
        return {name: self.plan.endpoint(name) for name in self.plan.nodes}

    @property
    def controller(self) -> Endpoint:
        """Network settings of the controller."""
        return self.plan.controller

    def up(self) -> Shaping:
        """Create and connect the namespaces and shape the links; after a failure everything is removed again.

        Returns how the links are shaped on this host.

        Raises:
            UnfitError: this host does not support it; the message names what is missing.
            RunError: a command failed, or a namespace exists already.
        """
        if there := [name for name in self.plan.namespaces if (NAMESPACES / name).exists()]:
            raise RunError(f"{NAMESPACES / there[0]}: exists already")
        shaping = choose_shaping(link for name in self.plan.nodes for link in self.plan.shaped_from(name))
        for name in self.plan.namespaces:
            self._ledger.namespace(name)
        try:
            ip(f"netns add {name}" for name in self.plan.namespaces)
            if shaping == "relay":
                self._relay()
            else:
                self._bridge()
            for end in self._ends:
                ip(
                    [
                        "link set dev lo up",
                        f"link set dev {end.interface} addrgenmode none address {end.mac}",
                        f"addr add {end.address}/{PREFIX_LENGTH} dev {end.interface}",
                        *([short_sends(end.interface, links)] if (links := self._links_from(end)) else []),
                        f"link set dev {end.interface} up",
                    ],
                    end.namespace,
                )
        except BaseException:
            self.down()
            raise
        return shaping

    def down(self) -> None:
        """End all processes in the namespaces and remove these; missing namespaces are no error.

        Raises:
            RunError: a namespace could not be removed.
        """
        for name in self.plan.namespaces:
            remove_namespace(name)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def cut(self, node: str) -> None:
        """Disconnect the node from the network."""
        ip([f"link set dev {INTERFACE} down"], self.nodes[node].namespace)

    def mend(self, node: str) -> None:
        """Reconnect the node."""
        ip([f"link set dev {INTERFACE} up"], self.nodes[node].namespace)

    @property
    def _ends(self) -> list[Endpoint]:
        return [*self.nodes.values(), self.controller]

    def _links_from(self, end: Endpoint) -> list[LinkSettings]:
        return [] if end == self.controller else self.plan.shaped_from(end.name)

    def _bridge(self) -> None:
        """Connect the namespaces by a bridge, and shape every link on its sender's interface."""
        ends = self._ends
        ip(
            [
                "link add br0 type bridge forward_delay 0 stp_state 0",
                "link set dev br0 addrgenmode none up",
                *(f"link add p{end.number} type veth peer name {end.interface} netns {end.namespace}" for end in ends),
                *(f"link set dev p{end.number} master br0 addrgenmode none up" for end in ends),
            ],
            self.plan.switch,
        )
        addresses = {name: end.address for name, end in self.nodes.items()}
        for end in ends:
            if links := self._links_from(end):
                tc(kernel_commands(end.interface, links, addresses, self.plan.nics.get(end.name)), end.namespace)

    def _relay(self) -> None:
        """Connect the namespaces by a relay, which creates their interfaces and shapes every link."""
        shapes = tuple(
            LinkShape(
                sender=self.nodes[link.sender].number,
                receiver=self.nodes[link.receiver].number,
                s_per_byte=1 / link.bytes_per_s if link.bytes_per_s else 0.0,
                queue_s=link.queue_bytes / link.bytes_per_s if link.bytes_per_s else 0.0,
                delay_s=link.delay_ms / 1000,
            )
            for link in self.plan.links
        )
        numbers = tuple(end.number for end in self.nodes.values())
        nics = tuple(
            NicShape(
                sender=self.nodes[name].number,
                receivers=numbers,
                s_per_byte=1 / (nic.bytes_per_s or math.inf),
                queue_s=nic.queue_bytes / (nic.bytes_per_s or math.inf),
            )
            for name, nic in ((name, LinkSettings(name, "", rate_mbit)) for name, rate_mbit in self.plan.nics.items())
        )
        taps = tuple(Tap(end.number, str(end.path), end.interface) for end in self._ends)
        self._process = start_relay(RelayPlan(str(NAMESPACES / self.plan.switch), taps, shapes, nics), self._log)

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()
