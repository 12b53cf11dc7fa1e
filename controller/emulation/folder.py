"""The folder of an emulated cluster: what lies in it while the cluster is up, and what stays.

Keys, programs and sockets go with the cluster. Logs stay for whoever wants to read them, until the next cluster of the
folder or `millrace clean`, which finds the folder by a link in the user's state folder.
"""

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

KEEPER_LOG, RELAY_LOG = "keeper.log", "relay.log"
LOGS = (KEEPER_LOG, RELAY_LOG)

KNOWN_HOSTS = "known_hosts"
NODES = "nodes"
PROGRAMS = ("ssh", "sftp")
"""Programs that reach the nodes from anywhere."""

_LINK = "emulated-"


def clear(folder: Path, key: Path) -> None:
    """Remove what is of no use without the cluster; logs stay.

    Args:
        folder: of the cluster.
        key: what its nodes are logged in to with.
    """
    shutil.rmtree(folder / NODES, ignore_errors=True)
    for path in folder.glob("*"):
        if path.is_socket() or path.name in (*PROGRAMS, KNOWN_HOSTS) or path in (key, public_part(key)):
            path.unlink(missing_ok=True)


def public_part(key: Path) -> Path:
    """Where the public part of a key lies."""
    return key.with_name(key.name + ".pub")


def remember(folder: Path, states: Path) -> None:
    """Let `millrace clean` find the folder again."""
    link = _link(folder, states)
    link.unlink(missing_ok=True)
    link.symlink_to(folder)


def remembered(states: Path) -> Iterator[Path]:
    """The folders of all clusters that were brought up here and whose logs have not been removed."""
    for link in sorted(states.glob(f"{_LINK}*")):
        yield link.readlink()


def logs_in(folder: Path) -> list[Path]:
    """The logs that lie in the folder of a cluster."""
    return [path for path in (folder / name for name in LOGS) if path.is_file()]


def forget(folder: Path, states: Path) -> None:
    """Remove the logs of a cluster that is not up, its folder where nothing else is in it, and the link to it."""
    for path in logs_in(folder):
        path.unlink()
    with suppress(OSError):
        folder.rmdir()
    _link(folder, states).unlink(missing_ok=True)


def _link(folder: Path, states: Path) -> Path:
    return states / f"{_LINK}{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"
