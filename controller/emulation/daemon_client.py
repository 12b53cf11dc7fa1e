"""Client of the emulation daemon: requests and replies over its socket."""

import socket
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from controller.emulation.sysfs_effects import RefusedWrite
from inventory.errors import RunError

SOCKET = "keeper.sock"
_PATIENCE_S = 30.0


class DaemonRequest(Struct, frozen=True):
    """`limit`: apply CPU and memory limits to nodes; `lift`: remove them; `status`: change nothing."""

    do: Literal["limit", "lift", "status"]


class DaemonReply(Struct, frozen=True, omit_defaults=True):
    """Reply of the daemon.

    Attributes:
        shares: current CPU quota of each node, in cores of this host.
        refused: values written by nodes since the start of the cluster that a real kernel would have refused.
        faults: messages on faults that make the cluster unusable: a node has ended, a quota was refused.
        error: why the request failed.
    """

    shares: dict[str, float] = {}
    refused: list[RefusedWrite] = []
    faults: list[str] = []
    error: str = ""


def ask(folder: Path, do: Literal["limit", "lift", "status"]) -> DaemonReply:
    """Send a request to the daemon of the cluster in `folder`; return its reply.

    Raises:
        RunError: it does not answer, or the request failed.
    """
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_PATIENCE_S)
            client.connect(str(folder / SOCKET))
            client.sendall(msgspec.json.encode(DaemonRequest(do)) + b"\n")
            with client.makefile("rb") as lines:
                reply = msgspec.json.decode(lines.readline(), type=DaemonReply)
    except (OSError, msgspec.DecodeError) as fault:
        raise RunError(f"the emulated cluster in {folder} does not answer: {fault}") from None
    if reply.error:
        raise RunError(f"the emulated cluster in {folder}: {reply.error}")
    return reply
