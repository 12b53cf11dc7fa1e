"""What OpenSSH itself would do to reach a host.

`ssh -G` reads `~/.ssh/config` and the system's file with everything that stands in them (Include, Match, tokens), and
the arguments that the inventory gives. Its answer goes to Fabric, so that the control channel takes the same way as
Ansible and as a user's own `ssh`.
"""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fabric import Config
from paramiko import SSHConfig

from inventory.ansible_hosts import Host
from inventory.errors import InputError, UnfitError

_MOST_HOPS = 10

_ASK_S = 30.0

_OF_USE = ("hostname", "user", "port", "proxyjump", "proxycommand")

Answer = Sequence[tuple[str, str]]
"""Keywords in small letters with their values; some come more than once."""


@dataclass(frozen=True)
class Way:
    """What counts for one host, or one jump host on the way to it.

    Attributes:
        known_hosts: files with keys of hosts, those of the user before those of the system.
        allows_agent: whether keys of the SSH agent may be tried.
    """

    known_hosts: tuple[Path, ...]
    allows_agent: bool


@dataclass(frozen=True)
class SshSettings:
    """How a host is reached.

    Attributes:
        config: what Fabric looks hosts up in: this one, and all jump hosts on the way.
        ways: by name, as `config` knows it.
    """

    config: Config
    ways: Mapping[str, Way]


def arguments_of(host: Host) -> list[str]:
    """What follows `ssh` on a command line that reaches the host as its inventory says, the host included."""
    given = list(host.ssh_args)
    for option, value in (("-p", host.ssh_port), ("-l", host.ssh_user), ("-i", host.ssh_key)):
        if value is not None:
            given += [option, str(value)]
    return [*given, host.ssh_host]


def settings_of(host: Host) -> SshSettings:
    """Ask OpenSSH.

    Raises:
        UnfitError: there is no OpenSSH client.
        InputError: an argument or the user's configuration is wrong.
    """
    answers = {host.ssh_host: _ask(host.name, arguments_of(host))}
    ahead = [host.ssh_host]
    while ahead:
        for hop in _hops(answers[ahead.pop()]):
            # A jump host is looked up by its own name; what the inventory says of the node is not meant for it.
            name = hop.rpartition("@")[2].partition(":")[0]
            if name not in answers and len(answers) <= _MOST_HOPS:
                answers[name] = _ask(host.name, [*file_of(host.ssh_args), name])
                ahead.append(name)
    text = "\n".join(_section(name, answer) for name, answer in answers.items())
    config = Config(ssh_config=SSHConfig.from_text(text), lazy=True)
    return SshSettings(config, {name: _way(answer) for name, answer in answers.items()})


def _ask(node: str, arguments: Sequence[str]) -> Answer:
    try:
        found = subprocess.run(
            ["ssh", "-G", *arguments],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_ASK_S,
        )
    except FileNotFoundError:
        raise UnfitError("there is no ssh on this machine; install the OpenSSH client") from None
    except subprocess.TimeoutExpired:
        raise UnfitError(f"node {node}: ssh -G {' '.join(arguments)} gives no answer") from None
    if found.returncode:
        raise InputError(f"node {node}: ssh -G {' '.join(arguments)}: {found.stderr.strip()}")
    pairs = (line.partition(" ") for line in found.stdout.splitlines())
    return [(keyword.lower(), value.strip()) for keyword, _, value in pairs]


def _hops(said: Answer) -> list[str]:
    hops = dict(said).get("proxyjump", "none")
    return [] if hops == "none" else [hop.removeprefix("ssh://") for hop in hops.split(",")]


def file_of(arguments: Sequence[str]) -> list[str]:
    """The argument that names another configuration file; it is the only one that OpenSSH hands on to jump hosts."""
    for at, argument in enumerate(arguments):
        if argument == "-F":
            return list(arguments[at : at + 2])
        if argument.startswith("-F"):
            return [argument]
    return []


def _way(said: Answer) -> Way:
    values = dict(said)
    known = [*values.get("userknownhostsfile", "").split(), *values.get("globalknownhostsfile", "").split()]
    return Way(
        known_hosts=tuple(Path(name).expanduser() for name in known if name != "none"),
        allows_agent=values.get("identitiesonly") != "yes" and values.get("identityagent") != "none",
    )


def _section(host: str, said: Answer) -> str:
    """The part of an answer that Fabric works with, as a section of an SSH configuration."""
    of_use = [f"  {keyword} {value}" for keyword, value in said if keyword in _OF_USE and value != "none"]
    # OpenSSH names all files that it would look for; one that is not there would end the login.
    named = dict.fromkeys(value for keyword, value in said if keyword == "identityfile")
    keys = [f"  identityfile {name}" for name in named if Path(name).expanduser().is_file()]
    return "\n".join([f"Host {host}", *of_use, *keys])
