"""Links of a host to others, set by `tc`: a class of `htb` per destination, with a queue or a delay below it.

All that is not for one of the destinations passes by at the speed of the interface: the control channel, if it uses
another address than the data, is never slowed.
"""

import json
import math
import re
import socket
import subprocess

HANDLE = "6d72:"
"""The handle of our root qdisc, by which it is known again."""

HEADERS = 14
"""Bytes of an Ethernet frame outside its payload: rates count them."""

UNLIMITED_MBIT = 100_000
"""Rate of a class whose link has a delay only."""

OWN_SEGMENTS_BELOW_MBIT = 1000
"""Below this rate a segment of 64 KiB, which a host passes to its interface at once, exceeds a queue's maximum."""

PUT_BACK = ("bfifo", "pfifo", "tbf")
"""Qdiscs without classes whose description by `tc` is also the command that creates them."""


class LinkError(Exception):
    """Raised for a link that is impossible on this host; the message contains possible values."""


def run(*arguments, text=None):
    """Return the output of a program.

    Raises:
        LinkError: it is missing or fails; the message contains its output.
    """
    try:
        done = subprocess.run(arguments, input=text, capture_output=True, text=True, check=False, timeout=20)
    except FileNotFoundError as fault:
        raise LinkError(f"there is no program {arguments[0]}: install iproute2") from fault
    if done.returncode:
        raise LinkError(f"{' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def has_netem():
    """Return whether this kernel delays packets, from a trial in a temporary network namespace."""
    try:
        run("unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
    except LinkError:
        return False
    return True


def routed(links):
    """Return outgoing interface -> links, each with the numeric address of its destination as `ip`.

    Args:
        links: dictionaries of `to`, `address`, `rate_mbit` and `delay_ms`, the last two None if not requested.

    Raises:
        LinkError: an address is unknown, or is this host's own.
    """
    devices = {}
    for link in links:
        try:
            ip = socket.getaddrinfo(link["address"], None, type=socket.SOCK_STREAM)[0][4][0]
        except OSError as fault:
            raise LinkError(f"link to {link['to']}: no address for {link['address']!r}: {fault.strerror}") from fault
        route = json.loads(run("ip", "-json", "route", "get", ip))[0]
        if route["dev"] == "lo":
            raise LinkError(f"link to {link['to']}: {link['address']} is an address of this host itself")
        devices.setdefault(route["dev"], []).append({**link, "ip": ip})
    return devices


def refusals(links):
    """Return why links are impossible on this host, one sentence per reason, without changing anything."""
    try:
        devices = routed(links)
        for name in devices:
            if not Device(name).is_shaped():
                Device(name).found()
        run("unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "htb")
    except LinkError as fault:
        return [str(fault)]
    delayed = [link["to"] for link in links if link["delay_ms"]]
    if delayed and not has_netem():
        return [f"delay_ms to {', '.join(delayed)}: this kernel has no netem; possible: rate_mbit, and delay_ms 0"]
    return []


class Device:
    """Network interface of this host: its qdiscs, and the maximum size of segments."""

    def __init__(self, name):
        self.name = name

    def found(self):
        """Return the state to restore: the root qdisc unless it is the kernel's default, and the sizes of segments.

        Raises:
            LinkError: a qdisc could not be restored exactly.
        """
        about = self._about()
        lines = [line.split() for line in self.qdiscs()]
        own = [words for words in lines if words[2] != "0:" and words[1] not in ("ingress", "clsact", "noqueue")]
        root = None
        if own:
            root = own[0]
            if len(own) > 1 or root[1] not in PUT_BACK or root[3] != "root":
                raise LinkError(
                    f"{self.name} has a qdisc of its own, {' '.join(root[1:3])}, that could not be put back exactly: "
                    f"remove it (tc qdisc del dev {self.name} root), or ask for no link over {self.name}"
                )
            root = root[1:2] + (root[6:] if root[4] == "refcnt" else root[4:])
        return {"root": root, "gso_max_size": about["gso_max_size"], "gso_max_segs": about["gso_max_segs"]}

    def qdiscs(self):
        """Return the qdiscs, one per line, in the format of `tc`."""
        return run("tc", "qdisc", "show", "dev", self.name).splitlines()

    def state(self):
        """Return everything that `shape` sets, as reported by the kernel: two equal states shape alike."""
        about = self._about()
        shown = [run("tc", what, "show", "dev", self.name).strip() for what in ("qdisc", "class", "filter")]
        shown[0] = re.sub(r" (refcnt|direct_packets_stat) \d+", "", shown[0])
        return [*shown, about["gso_max_size"], about["gso_max_segs"]]

    def is_shaped(self):
        """Return whether its root qdisc is ours."""
        return any(line.split()[2] == HANDLE for line in self.qdiscs())

    def shape(self, links):
        """Shape the links that leave by this interface, replacing earlier shaping."""
        mtu = self._about()["mtu"]
        slowest = min(link["rate_mbit"] or UNLIMITED_MBIT for link in links)
        self._clear()
        if slowest < OWN_SEGMENTS_BELOW_MBIT:
            self._limit_pieces(mtu + HEADERS, 1)
        run("tc", "-batch", "-", text="".join(f"{line}\n" for line in commands(self.name, mtu, links)))

    def restore(self, found):
        """Restore the state returned by `found`."""
        self._clear()
        self._limit_pieces(found["gso_max_size"], found["gso_max_segs"])
        if found["root"]:
            run("tc", "qdisc", "add", "dev", self.name, "root", *found["root"])

    def _about(self):
        return json.loads(run("ip", "-json", "-details", "link", "show", "dev", self.name))[0]

    def _clear(self):
        if any(words[2] != "0:" and words[3] == "root" for words in (line.split() for line in self.qdiscs())):
            run("tc", "qdisc", "del", "dev", self.name, "root")

    def _limit_pieces(self, size, segments):
        limits = ("gso_max_size", str(size), "gso_max_segs", str(segments))
        run("ip", "link", "set", "dev", self.name, *limits)


def commands(device, mtu, links):
    """Return the lines for `tc -batch` that shape the links leaving by a device; rates are of whole frames."""
    frame = mtu + HEADERS
    yield f"qdisc add dev {device} root handle {HANDLE} htb default 0"
    for index, link in enumerate(links, start=1):
        rate = link["rate_mbit"] or UNLIMITED_MBIT
        delay_ms = link["delay_ms"] or 0
        burst = max(2 * frame, round(rate * 128))
        queue = max(16 * frame, round(rate * 125 * max(10.0, 160 / math.sqrt(rate))))
        minor = f"{index:x}"
        yield (
            f"class add dev {device} parent {HANDLE} classid {HANDLE}{minor} "
            f"htb rate {round(rate * 1e6)}bit ceil {round(rate * 1e6)}bit burst {burst} cburst {burst} quantum {frame}"
        )
        if delay_ms:
            packets = math.ceil((queue + rate * 125 * delay_ms) / frame) if link["rate_mbit"] else 10_000
            leaf = f"netem delay {round(delay_ms * 1000)}us limit {packets}"
        else:
            leaf = f"bfifo limit {queue}"
        yield f"qdisc add dev {device} parent {HANDLE}{minor} {leaf}"
        family, length, priority = ("ip6", 128, 2) if ":" in link["ip"] else ("ip", 32, 1)
        protocol = "ipv6" if family == "ip6" else "ip"
        yield (
            f"filter add dev {device} parent {HANDLE} protocol {protocol} prio {priority} "
            f"u32 match {family} dst {link['ip']}/{length} flowid {HANDLE}{minor}"
        )
