"""Keys of an emulated cluster, the list by which nodes are known, and programs that reach them from anywhere."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from controller.emulation.folder import KNOWN_HOSTS, PROGRAMS, public_part
from inventory.errors import UnfitError


def make_keys(login: Path, nodes: Mapping[str, Path]) -> None:
    """Make a key to log in with and one for every node (name -> file), in place of what is there.

    Raises:
        UnfitError: OpenSSH is missing, or a folder cannot be written to.
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
    """The public part of the key at `path`: kind and key, without its comment."""
    return " ".join(public_part(path).read_text().split()[:2])


def known_hosts(keys: Mapping[str, Path], addresses: Mapping[str, str]) -> str:
    """The text of a file of known hosts: every node by its name and its address."""
    return "".join(f"{name},{addresses[name]} {public(path)}\n" for name, path in keys.items())


def write_programs(folder: Path, network: Path) -> None:
    """Write `ssh` and `sftp` that run in the controller's network namespace, the only one that nodes are reached from.

    Ansible is told to use them; what it does on this host itself stays outside.
    """
    for name in PROGRAMS:
        script = folder / name
        # Ansible keeps connections open, and knows them by the node's address, which nodes of other clusters have, too.
        options = f"-i {folder}/key -o IdentitiesOnly=yes -o UserKnownHostsFile={folder / KNOWN_HOSTS}"
        options += f" -o ControlPath={folder}/%h"
        script.write_text(f'#!/bin/sh\nexec nsenter --net={network} {name} {options} "$@"\n')
        script.chmod(0o700)
