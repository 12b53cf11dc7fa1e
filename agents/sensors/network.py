"""Traffic counters of the interface with the node's data address."""

import ipaddress
from collections.abc import Iterable

import psutil

from agents.sensors.base import Host, Row, Sensor


class NetworkSensor(Sensor):
    """Fills the table `network` with the kernel's counters, which increase while the interface exists.

    All nodes on loopback have the same interface, so its rows are `shared`.
    """

    summary = "traffic of the interface that carries the data address"

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._interface = ""

    def probe(self) -> str | None:
        interface = interface_of(self.host.address)
        if interface is None:
            return f"no network interface carries the data address {self.host.address}"
        if interface not in psutil.net_io_counters(pernic=True, nowrap=False):
            return f"the kernel counts no traffic of {interface}"
        self._interface = interface
        return None

    def read(self, now_ns: int) -> Iterable[Row]:
        counters = psutil.net_io_counters(pernic=True, nowrap=False).get(self._interface)
        if counters is None:
            raise OSError(f"the interface {self._interface} is gone")
        traffic = (counters.bytes_recv, counters.bytes_sent, counters.packets_recv, counters.packets_sent)
        return [Row("network", now_ns, (self._interface, *traffic, self.host.shared))]


def interface_of(address: str) -> str | None:
    """Return the name of the interface that has `address`, or None.

    All of 127.0.0.0/8 belongs to the loopback interface, although only one of its addresses is listed.
    """
    wanted = ipaddress.ip_address(address)
    for name, entries in sorted(psutil.net_if_addrs().items()):
        for entry in entries:
            try:
                carried = ipaddress.ip_address(entry.address.partition("%")[0])
            except ValueError:
                continue  # a hardware address
            if carried == wanted or (carried.is_loopback and wanted.is_loopback and carried.version == wanted.version):
                return name
    return None
