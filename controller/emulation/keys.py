"""Keys of an emulated cluster, its known_hosts file, and wrappers of `ssh` and `sftp` that reach its nodes."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from controller.emulation.folder import KNOWN_HOSTS, PROGRAMS, public_part
from inventory.errors import UnfitError


def make_keys(login: Path, nodes: Mapping[str, Path]) -> None:
    """Create a login key and a host key for every node (name -> file); replace existing ones.

    Raises:
        UnfitError: OpenSSH is missing, or a folder is not writable.
    """
    for comment, path in {"millrace": login, **nodes}.items():
        for old in (path, public_part(path)):
            old.unlink(missing_ok=True)
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        except FileNotFoundError:
            raise UnfitError("there is no 'ssh-keygen' on this host (package openssh-client)") from None
        if done.returncode:
            raise UnfitError(f"{path}: the key cannot be made: {done.stderr.strip() or done.stdout.strip()}")


def public(path: Path) -> str:
    """Return the public part of the key at `path`: type and key, without the comment."""
    return " ".join(public_part(path).read_text().split()[:2])


def known_hosts(keys: Mapping[str, Path], addresses: Mapping[str, str]) -> str:
    """Return the text of a known_hosts file with every node's name and address."""
    return "".join(f"{name},{addresses[name]} {public(path)}\n" for name, path in keys.items())


def write_programs(folder: Path, network: Path) -> None:
    """Write wrappers of `ssh` and `sftp` that enter the controller's network namespace, from which nodes are reachable.

    Ansible uses them for the nodes; its tasks on this host run outside the namespace.
    """
    for name in PROGRAMS:
        script = folder / name
        # Ansible names shared connections by the node's address, which nodes of other clusters have, too.
        options = f"-i {folder}/key -o IdentitiesOnly=yes -o UserKnownHostsFile={folder / KNOWN_HOSTS}"
        options += f" -o ControlPath={folder}/%h"
        script.write_text(f'#!/bin/sh\nexec nsenter --net={network} {name} {options} "$@"\n')
        script.chmod(0o700)
