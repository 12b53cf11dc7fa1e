"""Network of an emulated cluster: one namespace per node, one for the controller, and one for the switch.

The host's interfaces, routes and firewall are never changed. Every name starts with the network's prefix, which has a
random part, and is recorded before the namespace is created. Taking the network down ends all processes in its
namespaces and removes these with everything in them.
"""

import secrets
import subprocess
from functools import cached_property
from ipaddress import IPv4Address
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from msgspec import Struct

from controller.emulation.link_model import LinkShape
from controller.emulation.relay import RelayPlan, Tap, start_relay
from controller.emulation.shaping import Shaping, choose, kernel_commands, short_sends
from controller.host.iproute2 import ip, tc
from controller.host.namespaces import NAMESPACES, remove_namespace
from inventory.errors import InputError, RunError
from inventory.links import Link

INTERFACE = "eth0"
PREFIX_LENGTH = 24
_NETWORK = int(IPv4Address("10.77.0.0"))
_CONTROLLER = 254


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
    """

    prefix: str
    nodes: tuple[str, ...]
    links: tuple[Link, ...] = ()

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
        shaping = choose(self.plan.links)
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

    def _links_from(self, end: Endpoint) -> list[Link]:
        return [link for link in self.plan.links if link.sender == end.name and end != self.controller]

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
                tc(kernel_commands(end.interface, links, addresses), end.namespace)

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
        taps = tuple(Tap(end.number, str(end.path), end.interface) for end in self._ends)
        self._process = start_relay(RelayPlan(str(NAMESPACES / self.plan.switch), taps, shapes), self._log)

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()
