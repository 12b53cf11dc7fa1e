"""The network of an emulated cluster: a namespace per node, one for the controller, one for what joins them.

The host's own interfaces, routes and firewall are never touched. Every name begins with the network's prefix, which
holds a random part, and is written down before the thing exists; taking the network down ends whatever still runs in
one of its namespaces and removes them, and with a namespace goes all that is in it.
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
    """What a node (or the controller) gets of the network.

    Attributes:
        name: the node's id; `ctl` is the controller's.
        number: the last part of its address.
        namespace: name of its network namespace, as `ip netns` knows it.
        interface: the interface through which it reaches the others.
        address: its address on that interface, in a network of `PREFIX_LENGTH` bits.
    """

    name: str
    number: int
    namespace: str
    interface: str
    address: str

    @property
    def path(self) -> Path:
        """The file by which the namespace is entered (`nsenter --net=`, `entering.enter`)."""
        return NAMESPACES / self.namespace

    @property
    def mac(self) -> str:
        """Its hardware address, which ends in its number: that is how the relay knows it."""
        return f"02:00:00:00:01:{self.number:02x}"


class NetworkPlan(Struct, frozen=True):
    """What to build.

    Attributes:
        prefix: begins every name; see `new_prefix`.
        nodes: ids of the nodes; node i, counted from 1, gets the address 10.77.0.i.
        links: the links that are limited or delayed; all others, and those of the controller, are neither.
    """

    prefix: str
    nodes: tuple[str, ...]
    links: tuple[Link, ...] = ()

    def endpoint(self, name: str) -> Endpoint:
        """What the node `name` gets."""
        return self._endpoint(name, self.nodes.index(name) + 1, str(self.nodes.index(name) + 1))

    @property
    def controller(self) -> Endpoint:
        """What the controller gets: a namespace of its own, at 10.77.0.254."""
        return self._endpoint("ctl", _CONTROLLER, "ctl")

    @property
    def switch(self) -> str:
        """Name of the namespace that joins the others: a bridge or the relay lives there."""
        return f"{self.prefix}-sw"

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Names of all namespaces, the switch's last."""
        ends = [self.endpoint(name) for name in self.nodes]
        return (*(end.namespace for end in ends), self.controller.namespace, self.switch)

    def _endpoint(self, name: str, number: int, suffix: str) -> Endpoint:
        return Endpoint(name, number, f"{self.prefix}-{suffix}", INTERFACE, str(IPv4Address(_NETWORK + number)))


class NetworkLedger(Protocol):
    """Where names are written down before what they name exists, so that a crash leaves nothing unknown."""

    def namespace(self, name: str) -> None:
        """Write down a network namespace that is about to be made."""
        ...


def new_prefix() -> str:
    """A prefix that no other network has: `mr` and eight random hexadecimal digits."""
    return f"mr{secrets.token_hex(4)}"


class EmulatedNetwork:
    """The network of one emulated cluster, from `up` to `down`.

    >>> plan = NetworkPlan(new_prefix(), ("n1", "n2"), (Link("n1", "n2", rate_mbit=100, delay_ms=1),))
    >>> with EmulatedNetwork(plan, ledger, log) as network:  # doctest: +SKIP
    ...     subprocess.run(["nsenter", f"--net={network.nodes['n1'].path}", "ip", "addr"])

    `down` needs nothing that `up` has found out: the network that a process has brought up can be taken down by
    another, with the same plan. `log` is the file to which the relay, where there is one, adds what it has to say.
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
        """What each node gets, by its id, in the order of the plan."""
        return {name: self.plan.endpoint(name) for name in self.plan.nodes}

    @property
    def controller(self) -> Endpoint:
        """What the controller gets."""
        return self.plan.controller

    def up(self) -> Shaping:
        """Make the namespaces, join them, and shape the links; after a failure nothing is left.

        Returns what shapes the links on this host.

        Raises:
            UnfitError: this host cannot do it; the message says what is missing.
            RunError: a command failed, or something of that name is there already.
        """
        if there := [name for name in self.plan.namespaces if (NAMESPACES / name).exists()]:
            raise RunError(f"{NAMESPACES / there[0]}: is there already")
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
        """End what still runs in the namespaces and remove them; what is not there any more is no error.

        Raises:
            RunError: something could not be removed.
        """
        for name in self.plan.namespaces:
            remove_namespace(name)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def cut(self, node: str) -> None:
        """Pull the node's cable: nothing reaches it or leaves it any more."""
        ip([f"link set dev {INTERFACE} down"], self.nodes[node].namespace)

    def mend(self, node: str) -> None:
        """Put the cable in again."""
        ip([f"link set dev {INTERFACE} up"], self.nodes[node].namespace)

    @property
    def _ends(self) -> list[Endpoint]:
        return [*self.nodes.values(), self.controller]

    def _links_from(self, end: Endpoint) -> list[Link]:
        return [link for link in self.plan.links if link.sender == end.name and end != self.controller]

    def _bridge(self) -> None:
        """Join the namespaces by a bridge, and shape every link where its sender's frames leave."""
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
        """Join the namespaces by a relay, which makes their interfaces and shapes every link."""
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
