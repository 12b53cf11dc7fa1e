"""Folder of an emulated cluster.

Keys, programs and sockets are removed with the cluster. Logs stay until the next cluster in the folder or until
`millrace clean`, which finds the folder by a link in the user's state folder.
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
"""Wrapper programs that reach the nodes from outside their network."""

_LINK = "emulated-"


def clear(folder: Path, key: Path) -> None:
    """Remove all files that belong to a running cluster; keep the logs.

    Args:
        folder: folder of the cluster.
        key: login key of its nodes.
    """
    shutil.rmtree(folder / NODES, ignore_errors=True)
    for path in folder.glob("*"):
        if path.is_socket() or path.name in (*PROGRAMS, KNOWN_HOSTS) or path in (key, public_part(key)):
            path.unlink(missing_ok=True)


def public_part(key: Path) -> Path:
    """Return the file of a key's public part."""
    return key.with_name(key.name + ".pub")


def remember(folder: Path, states: Path) -> None:
    """Link to the folder from the state folder, for `millrace clean`."""
    link = _link(folder, states)
    link.unlink(missing_ok=True)
    link.symlink_to(folder)


def remembered(states: Path) -> Iterator[Path]:
    """Yield the folders of all clusters on this host whose logs have not been removed."""
    for link in sorted(states.glob(f"{_LINK}*")):
        yield link.readlink()


def logs_in(folder: Path) -> list[Path]:
    """Return the logs in the folder of a cluster."""
    return [path for path in (folder / name for name in LOGS) if path.is_file()]


def forget(folder: Path, states: Path) -> None:
    """Remove the logs of a stopped cluster, the link to its folder, and the folder if it is empty."""
    for path in logs_in(folder):
        path.unlink()
    with suppress(OSError):
        folder.rmdir()
    _link(folder, states).unlink(missing_ok=True)


def _link(folder: Path, states: Path) -> Path:
    return states / f"{_LINK}{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"
