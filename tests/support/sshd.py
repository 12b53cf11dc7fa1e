"""Real SSH servers on 127.0.0.x, each a node with its host key, work folder and installed environment."""

import getpass
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

import psutil
import yaml

from controller.host.process_identity import marked
from controller.ssh.node_lease_daemon import WORK
from inventory.ansible_hosts import Hosts, InventoryHost, load_hosts

PROGRAM = shutil.which("sshd", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))

CONFIG = """\
ListenAddress {address}
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {keys}
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 100
Subsystem sftp internal-sftp
LogLevel VERBOSE
"""


class Sshd:
    """One SSH server, and the node behind it.

    Attributes:
        ahead_s: offset of its monotonic clock from that of this host.
        home, work: folders of the node's environment, and of agents.
        modules: folder on the node's Python path.
    """

    def __init__(self, name: str, address: str, folder: Path, keys: Path) -> None:
        self.name, self.address, self.folder = name, address, folder
        self.clock_offset_s = 0
        folder.mkdir()
        with socket.create_server((address, 0)) as probe:
            self.port = probe.getsockname()[1]
        keygen(folder / "host_key")
        config = CONFIG.format(address=address, port=self.port, folder=folder, keys=keys)
        (folder / "sshd_config").write_text(config)
        self.home, self.work, self.modules = folder / "home", folder / "work", folder / "modules"
        self.modules.mkdir()
        python = self.home / "venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nPYTHONPATH={self.modules} exec {shlex.quote(sys.executable)} "$@"\n')
        python.chmod(0o755)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server and wait until it listens."""
        assert PROGRAM is not None
        if os.geteuid() == 0:
            # An sshd of root does not start without this folder, which systems create at boot.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        log = (self.folder / "sshd.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [*self._clock_shift, PROGRAM, "-D", "-e", "-f", str(self.folder / "sshd_config")],
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        for _ in range(500):
            with suppress(OSError), socket.create_connection((self.address, self.port)):
                return
            time.sleep(0.02)
        raise AssertionError((self.folder / "sshd.log").read_text())

    @property
    def _clock_shift(self) -> list[str]:
        """Command prefix that shifts the node's monotonic clock; needs root."""
        return ["unshare", "--time", "--monotonic", str(self.clock_offset_s), "--"] if self.clock_offset_s else []

    @property
    def known_host(self) -> str:
        """Its line in a file of known hosts."""
        return f"[{self.address}]:{self.port} {' '.join((self.folder / 'host_key.pub').read_text().split()[:2])}\n"

    @property
    def log(self) -> str:
        """Output of the server."""
        return (self.folder / "sshd.log").read_text()

    def processes(self) -> list[psutil.Process]:
        """Return the server and its connection processes, without the programs that run over them."""
        if self._process is None or self._process.poll() is not None:
            return []
        listener = psutil.Process(self._process.pid)
        found = [listener]
        for child in listener.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if child.name().startswith("sshd"):
                    found.append(child)
        return found

    def signal(self, number: int) -> None:
        """Send a signal to the server and its connection processes."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def kill(self) -> None:
        """Kill the server and all connections."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def campaign_processes(self) -> list[int]:
        """Return ids of processes that run on the node for a campaign."""
        return [process.pid for process in marked(f"{WORK}={self.work}".encode())]


class Lab:
    """Several nodes behind SSH servers, their key and their inventory."""

    def __init__(self, folder: Path, addresses: Sequence[str]) -> None:
        self.folder = folder
        self.key, self.known_hosts = folder / "key", folder / "known_hosts"
        keygen(self.key)
        keys = self.key.with_suffix(".pub")
        self.nodes = {f"n{at}": Sshd(f"n{at}", a, folder / f"n{at}", keys) for at, a in enumerate(addresses, 1)}
        self.known_hosts.write_text("".join(node.known_host for node in self.nodes.values()))
        self.inventory = folder / "lab.yml"
        self._write()

    def _write(self) -> None:
        hosts = {
            name: {
                "ansible_host": node.address,
                "ansible_port": node.port,
                "millrace_home": str(node.home),
                "millrace_work": str(node.work),
            }
            for name, node in self.nodes.items()
        }
        common = {
            "ansible_user": getpass.getuser(),
            "millrace_user": getpass.getuser(),
            "ansible_ssh_private_key_file": str(self.key),
            "ansible_ssh_common_args": f"-F none -o UserKnownHostsFile={self.known_hosts} -o IdentitiesOnly=yes",
            "millrace_tier": 1,
            "millrace_slots": 2,
            "millrace_cores": 2,
            "millrace_max_ghz": 2.4,
            "millrace_flops_per_cycle": 4,
        }
        self.inventory.write_text(yaml.safe_dump({"workers": {"hosts": hosts, "vars": common}}))

    @cached_property
    def hosts(self) -> Hosts:
        """The inventory, loaded once, because Ansible is slow."""
        return load_hosts(self.inventory)

    def host(self, name: str) -> InventoryHost:
        """Return a node of the inventory."""
        return self.hosts.by_name[name]


@contextmanager
def lab(
    folder: Path, addresses: Sequence[str] = ("127.0.0.2", "127.0.0.3"), clock_offset_s: Mapping[str, int] | None = None
) -> Iterator[Lab]:
    """Start a lab; everything ends with the block. `ahead_s` shifts monotonic clocks of nodes."""
    made = Lab(folder, addresses)
    try:
        for name, node in made.nodes.items():
            node.clock_offset_s = (clock_offset_s or {}).get(name, 0)
            node.start()
        yield made
    finally:
        for node in made.nodes.values():
            node.signal(signal.SIGCONT)
            node.kill()
            for pid in node.campaign_processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def keygen(path: Path) -> None:
    """Generate a key pair."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
