"""Emulated clusters for tests: inventories with a folder of their own, and what this host is like beside them."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from controller.emulation.cluster import EmulatedCluster, bring_up
from controller.emulation.description import Description, request_of
from controller.host.cgroups import find_hierarchy
from inventory.ansible_hosts import Hosts, load_hosts

MACHINES = (
    {"cores": 4, "sockets": 2, "ghz": 3.0, "min_ghz": 1.2, "share_per_core": 0.1, "memory_mb": 256, "disk_mb": 64},
    {"cores": 2, "ghz": 2.0, "turbo_ghz": 2.4, "share_per_core": 0.1, "memory_mb": 128, "disk_mb": 32},
)


@contextmanager
def own_state(folder: Path) -> Iterator[Path]:
    """State files and locks in `folder`: what else runs on this host is none of our business."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


def inventory_in(folder: Path, machines: Sequence[dict[str, object]] = MACHINES, **variables: object) -> Path:
    """Write an inventory of emulated nodes that keeps everything in `folder / "cluster"`."""
    place = folder / "cluster"
    everybody = {
        "millrace_tier": 2,
        "millrace_service_manager": "none",
        "ansible_user": "root",
        "millrace_user": "root",
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_private_key_file": f"{place}/key",
        "ansible_ssh_executable": f"{place}/ssh",
        "ansible_sftp_executable": f"{place}/sftp",
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={place}/known_hosts -o IdentitiesOnly=yes",
    }
    hosts = {
        f"n{at}": {"ansible_host": f"10.77.0.{at}", "millrace_emulate": dict(machine)}
        for at, machine in enumerate(machines, 1)
    }
    text = {"all": {"vars": everybody | variables, "children": {"workers": {"hosts": hosts}}}}
    path = folder / "emulated.yml"
    path.write_text(yaml.safe_dump(text))
    return path


def hosts_in(folder: Path) -> Hosts:
    """The hosts of an inventory that is written into `folder`."""
    return load_hosts(inventory_in(folder))


def up(hosts: Hosts) -> EmulatedCluster:
    """Bring a cluster up."""
    return bring_up(request_of(hosts), lambda _part: None)


def on(description: Description, node: int, command: str, seconds: float = 30) -> subprocess.CompletedProcess[str]:
    """Have the shell of root on a node do something, over SSH."""
    words = [f"{description.request.folder}/ssh", f"root@10.77.0.{node}", command]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=seconds)


def said(description: Description, node: int, command: str) -> str:
    """What such a command prints; it must succeed."""
    done = on(description, node, command)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def host_state() -> dict[str, object]:
    """What a cluster must leave as it was: the host's interfaces, what shapes them, its settings, and its mounts.

    `ip netns` mounts /run/netns when it is first used after a start of the machine, and namespaces (nsfs) below it.
    """

    def lines(*command: str) -> list[str]:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    return {
        "links": [line.split(" mtu ")[0] for line in lines("ip", "-o", "link")],
        "shaping": lines("tc", "qdisc"),
        "name": lines("uname", "-n"),
        "mounts": [
            line
            for line in Path("/proc/self/mounts").read_text().splitlines()
            if "nsfs" not in line and " /run/netns " not in line
        ],
        "sysctl": Path("/proc/sys/net/ipv4/ip_forward").read_text(),
        "hosts": Path("/etc/hosts").read_text(),
        "keys": sorted(path.name for path in Path("/etc/ssh").iterdir()),
    }


def left_of(prefix: str) -> list[str]:
    """Namespaces and control groups whose names begin with a cluster's prefix."""
    groups = [path for folder in find_hierarchy().folders for path in Path(folder).glob(f"{prefix}*")]
    return [str(path) for path in (*groups, *Path("/run/netns").glob(f"{prefix}*"))]
