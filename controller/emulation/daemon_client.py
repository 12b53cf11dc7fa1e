"""What programs ask the keeper of an emulated cluster."""

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
    """`limit`: hold nodes to their shares and memory; `lift`: let them have what is there; `status`: neither."""

    do: Literal["limit", "lift", "status"]


class DaemonReply(Struct, frozen=True, omit_defaults=True):
    """What the keeper says.

    Attributes:
        shares: cores of this host that each node is worth now.
        refused: values written by nodes that a kernel would not have taken, since the cluster came up.
        faults: what makes the cluster worthless from then on, in words: a node has ended, a quota is not taken.
        error: why it could not be done.
    """

    shares: dict[str, float] = {}
    refused: list[RefusedWrite] = []
    faults: list[str] = []
    error: str = ""


def ask(folder: Path, do: Literal["limit", "lift", "status"]) -> DaemonReply:
    """Ask the keeper of the cluster in `folder`.

    Raises:
        RunError: it does not answer, or cannot do it.
    """
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_PATIENCE_S)
            client.connect(str(folder / SOCKET))
            client.sendall(msgspec.json.encode(DaemonRequest(do)) + b"\n")
            with client.makefile("rb") as lines:
                answer = msgspec.json.decode(lines.readline(), type=DaemonReply)
    except (OSError, msgspec.DecodeError) as fault:
        raise RunError(f"the emulated cluster in {folder} does not answer: {fault}") from None
    if answer.error:
        raise RunError(f"the emulated cluster in {folder}: {answer.error}")
    return answer
