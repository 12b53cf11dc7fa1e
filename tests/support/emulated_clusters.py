"""Emulated clusters for tests: inventories with a folder of their own, commands on nodes, and the state of the host."""

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
def isolated_state(folder: Path) -> Iterator[Path]:
    """Keep state files and locks in `folder`, apart from those of other campaigns on this host."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


def write_inventory(folder: Path, machines: Sequence[dict[str, object]] = MACHINES, **variables: object) -> Path:
    """Write an inventory of emulated nodes whose files are all in `folder / "cluster"`."""
    place = folder / "cluster"
    common = {
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
    text = {"all": {"vars": common | variables, "children": {"workers": {"hosts": hosts}}}}
    path = folder / "emulated.yml"
    path.write_text(yaml.safe_dump(text))
    return path


def write_hosts(folder: Path) -> Hosts:
    """Return the hosts of an inventory that is written into `folder`."""
    return load_hosts(write_inventory(folder))


def start_cluster(hosts: Hosts) -> EmulatedCluster:
    """Bring up an emulated cluster."""
    return bring_up(request_of(hosts), lambda _part: None)


def run_on(description: Description, node: int, command: str, seconds: float = 30) -> subprocess.CompletedProcess[str]:
    """Run a shell command as root on a node, over SSH."""
    command_line = [f"{description.request.folder}/ssh", f"root@10.77.0.{node}", command]
    return subprocess.run(command_line, capture_output=True, text=True, check=False, timeout=seconds)


def output_on(description: Description, node: int, command: str) -> str:
    """Return the output of a command that must succeed."""
    done = run_on(description, node, command)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def host_state() -> dict[str, object]:
    """Return the host state that a cluster must leave unchanged: interfaces, queueing disciplines, settings and mounts.

    `ip netns` mounts /run/netns at its first use after boot, and namespaces (nsfs) below it; these are left out.
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


def leftovers(prefix: str) -> list[str]:
    """Return namespaces and control groups whose names start with a cluster's prefix."""
    groups = [path for folder in find_hierarchy().folders for path in Path(folder).glob(f"{prefix}*")]
    return [str(path) for path in (*groups, *Path("/run/netns").glob(f"{prefix}*"))]
