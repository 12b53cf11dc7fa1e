"""Connection settings of a host, as OpenSSH itself resolves them.

`ssh -G` evaluates `~/.ssh/config` and the system's configuration (Include, Match, tokens) and the arguments of the
inventory. Its output configures Fabric, so that the control channel uses the same route as Ansible and `ssh`.
"""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fabric import Config
from paramiko import SSHConfig

from inventory.ansible_hosts import InventoryHost
from inventory.errors import InputError, UnfitError

_MOST_HOPS = 10

_QUERY_S = 30.0

_USED = ("hostname", "user", "port", "proxyjump", "proxycommand")

SshOptions = Sequence[tuple[str, str]]
"""Lower-case keywords with their values; some occur more than once."""


@dataclass(frozen=True)
class HostSettings:
    """Settings of one host or jump host.

    Attributes:
        known_hosts: known_hosts files, the user's before the system's.
        allows_agent: whether keys of the SSH agent may be used.
    """

    known_hosts: tuple[Path, ...]
    allows_agent: bool


@dataclass(frozen=True)
class SshSettings:
    """Settings of a host and its jump hosts.

    Attributes:
        config: Fabric's configuration of the host and all jump hosts.
        hosts: other settings, by the name of the host in `config`.
    """

    config: Config
    hosts: Mapping[str, HostSettings]


def arguments_of(host: InventoryHost) -> list[str]:
    """Return the arguments of an `ssh` command that reaches the host as its inventory specifies, with the host."""
    given = list(host.ssh_args)
    for option, value in (("-p", host.ssh_port), ("-l", host.ssh_user), ("-i", host.ssh_key)):
        if value is not None:
            given += [option, str(value)]
    return [*given, host.ssh_host]


def ssh_settings(host: InventoryHost) -> SshSettings:
    """Return OpenSSH's settings for a host.

    Raises:
        UnfitError: there is no OpenSSH client.
        InputError: an argument or the user's configuration is wrong.
    """
    options_of = {host.ssh_host: _query(host.name, arguments_of(host))}
    ahead = [host.ssh_host]
    while ahead:
        for hop in _hops(options_of[ahead.pop()]):
            # A jump host is looked up by its own name, without the inventory's arguments for the node.
            name = hop.rpartition("@")[2].partition(":")[0]
            if name not in options_of and len(options_of) <= _MOST_HOPS:
                options_of[name] = _query(host.name, [*file_of(host.ssh_args), name])
                ahead.append(name)
    text = "\n".join(_section(name, options) for name, options in options_of.items())
    config = Config(ssh_config=SSHConfig.from_text(text), lazy=True)
    return SshSettings(config, {name: _host_settings(options) for name, options in options_of.items()})


def _query(node: str, arguments: Sequence[str]) -> SshOptions:
    try:
        completed = subprocess.run(
            ["ssh", "-G", *arguments],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_QUERY_S,
        )
    except FileNotFoundError:
        raise UnfitError("there is no ssh on this machine; install the OpenSSH client") from None
    except subprocess.TimeoutExpired:
        raise UnfitError(f"node {node}: ssh -G {' '.join(arguments)} does not answer") from None
    if completed.returncode:
        raise InputError(f"node {node}: ssh -G {' '.join(arguments)}: {completed.stderr.strip()}")
    pairs = (line.partition(" ") for line in completed.stdout.splitlines())
    return [(keyword.lower(), value.strip()) for keyword, _, value in pairs]


def _hops(output: SshOptions) -> list[str]:
    hops = dict(output).get("proxyjump", "none")
    return [] if hops == "none" else [hop.removeprefix("ssh://") for hop in hops.split(",")]


def file_of(arguments: Sequence[str]) -> list[str]:
    """Return the argument `-F FILE`, if given; it is the only one that OpenSSH passes on to jump hosts."""
    for at, argument in enumerate(arguments):
        if argument == "-F":
            return list(arguments[at : at + 2])
        if argument.startswith("-F"):
            return [argument]
    return []


def _host_settings(output: SshOptions) -> HostSettings:
    values = dict(output)
    known = [*values.get("userknownhostsfile", "").split(), *values.get("globalknownhostsfile", "").split()]
    return HostSettings(
        known_hosts=tuple(Path(name).expanduser() for name in known if name != "none"),
        allows_agent=values.get("identitiesonly") != "yes" and values.get("identityagent") != "none",
    )


def _section(host: str, output: SshOptions) -> str:
    """Return the settings that Fabric uses, as a section of an SSH configuration."""
    used = [f"  {keyword} {value}" for keyword, value in output if keyword in _USED and value != "none"]
    # OpenSSH lists all candidate files; a missing one would make the login fail.
    named = dict.fromkeys(value for keyword, value in output if keyword == "identityfile")
    keys = [f"  identityfile {name}" for name in named if Path(name).expanduser().is_file()]
    return "\n".join([f"Host {host}", *used, *keys])
