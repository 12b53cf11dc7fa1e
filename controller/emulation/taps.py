"""TAP devices in nodes' network namespaces: interfaces whose frames are read and written through a file descriptor."""

import fcntl
import os
import struct
from pathlib import Path

from controller.emulation.link_model import HEADER
from controller.host.namespaces import inside
from inventory.errors import UnfitError

_DEVICE = Path("/dev/net/tun")
# linux/if_tun.h
_TUNSETIFF = 0x400454CA
_TUNSETOFFLOAD = 0x400454D0
_TUNSETVNETHDRSZ = 0x400454D8
_TUNSETVNETLE = 0x400454DC
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
_TUN_F_CSUM, _TUN_F_TSO4, _TUN_F_TSO6 = 0x01, 0x02, 0x04

LARGEST = HEADER + 14 + 65535
"""Bytes of the largest frame, with its `virtio_net_hdr`."""


def open_tap(namespace: Path, interface: str) -> int:
    """Create `interface` in the network namespace; return its non-blocking descriptor.

    A read returns one frame sent by the node, a write delivers one to it; each starts with a little-endian
    `virtio_net_hdr`. Checksums and TCP segmentation are offloaded, so that one frame holds up to 64 KiB. The interface
    exists until the descriptor is closed, which can be used from any namespace.

    Raises:
        UnfitError: the host has no TAP devices, or they are not permitted.
    """
    with inside(namespace):
        try:
            handle = os.open(_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as fault:
            raise UnfitError(f"{_DEVICE}: cannot be opened: {fault.strerror}; delays need it on this kernel") from None
        try:
            flags = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR
            fcntl.ioctl(handle, _TUNSETIFF, struct.pack("16sH22x", interface.encode(), flags))
            fcntl.ioctl(handle, _TUNSETVNETHDRSZ, struct.pack("i", HEADER))
            fcntl.ioctl(handle, _TUNSETVNETLE, struct.pack("i", 1))
            fcntl.ioctl(handle, _TUNSETOFFLOAD, _TUN_F_CSUM | _TUN_F_TSO4 | _TUN_F_TSO6)
        except OSError as fault:
            os.close(handle)
            raise UnfitError(f"{_DEVICE}: {interface} cannot be made: {fault.strerror}") from None
    return handle
