"""Ansible's SSH connection to a host, from the host's variables.

Of two names for one setting, Ansible's SSH connection uses the older one, with `ssh` in its name, if both are set.
"""

import shlex
from pathlib import Path

from msgspec import Struct

from inventory.cluster import AtLeastOne
from inventory.documents import Origin

COMMON_ARGUMENTS, EXTRA_ARGUMENTS = "ansible_ssh_common_args", "ansible_ssh_extra_args"
HOST_NAMES = ("ansible_ssh_host", "ansible_host")
"""Variables of the address to connect to; the first that is set counts."""


class AnsibleConnection(Struct, frozen=True):
    """Ansible's variables of an SSH connection."""

    ansible_host: str | None = None
    ansible_ssh_host: str | None = None
    ansible_port: AtLeastOne | None = None
    ansible_ssh_port: AtLeastOne | None = None
    ansible_user: str | None = None
    ansible_ssh_user: str | None = None
    ansible_private_key_file: str | None = None
    ansible_ssh_private_key_file: str | None = None
    ansible_ssh_common_args: str = ""
    ansible_ssh_extra_args: str = ""

    @property
    def host(self) -> str | None:
        """Address or name to connect to; None: the name in the inventory."""
        return self.ansible_ssh_host or self.ansible_host

    @property
    def port(self) -> int | None:
        """Port; None leaves it to the SSH configuration."""
        return self.ansible_ssh_port or self.ansible_port

    @property
    def user(self) -> str | None:
        """Login user of playbooks; None leaves it to the SSH configuration."""
        return self.ansible_ssh_user or self.ansible_user

    @property
    def key(self) -> Path | None:
        """Private key; None leaves it to the SSH configuration."""
        key = self.ansible_ssh_private_key_file or self.ansible_private_key_file
        return Path(key).expanduser() if key else None

    def arguments(self, origin: Origin) -> tuple[str, ...]:
        """Return the further arguments of OpenSSH.

        Args:
            origin: origin of the host's variables.

        Raises:
            InputError: a quote is not closed.
        """
        arguments: list[str] = []
        for variable in (COMMON_ARGUMENTS, EXTRA_ARGUMENTS):
            text: str = getattr(self, variable)
            try:
                arguments += shlex.split(text)
            except ValueError as fault:
                raise (origin / variable).error(f"{text!r} cannot be split into arguments: {fault}") from None
        return tuple(arguments)
