"""A guest: a whole machine in a process, with a kernel of its own, reached over SSH on a port of 127.0.0.1.

Its processors are emulated (qemu's TCG), so that it is the same machine on every host, and slow. It has two cores of
two siblings, clocks that can be set, and a disk that keeps what is written until the process ends. What it has besides
is its `Hardware`.

On busy hosts a start may come to a halt half-way: then the reset button is pressed. About one in twenty did while the
kernel trusted the processors' counter of cycles (TSC), which it measures in passing; now it is told not to.
"""

import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import yaml
from guest_image import Image

from inventory.parent_death import end_with

ADDRESS = "127.0.0.1"
LISTENS = "Server listening on 0.0.0.0 port 22."
"""What its SSH server says once per start of the machine."""

COMMAND_S, END_S = 300.0, 20.0
"""How long it may take to do what it is told, and to end; a host that is busy is slow."""

KERNEL_WORDS = "console=ttyS0 loglevel=4 net.ifnames=0 panic=1 mitigations=off tsc=unstable"

STARTS = 4
"""How often it may try to."""


class Hardware(NamedTuple):
    """In what guests differ, besides their images.

    Attributes:
        memory_mb: its memory, in units of 1024**2 bytes.
        start_s: how long it may take to start.
        words: what its kernel is told besides.
        reaches_out: whether it reaches what its host reaches; else only its SSH server leads to it.
        devices: what it has besides, as qemu's arguments.
    """

    memory_mb: int = 512
    start_s: float = 120.0
    words: tuple[str, ...] = ()
    reaches_out: bool = False
    devices: tuple[str, ...] = ()


SMALL = Hardware()


class Guest:
    """A running guest.

    Args:
        image: what it is made of.
        folder: for its log, its inventories and the sockets of SSH connections; a short path.
        hardware: what it is made with.
    """

    def __init__(self, image: Image, folder: Path, hardware: Hardware = SMALL) -> None:
        self._folder = folder
        self._hardware = hardware
        # Another run of the tests may remove the image once it is out of date.
        self._key = Path(shutil.copy(image.key, folder))
        self._log = folder / "console.log"
        self._known_hosts = folder / "known_hosts"
        with socket.create_server((ADDRESS, 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self._known_hosts.write_text(f"[{ADDRESS}]:{self.port} {image.host_key}\n")
        self._log.touch()
        with (folder / "qemu.log").open("wb") as said:
            self._process = subprocess.Popen(
                self._command(image),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                preexec_fn=end_with(os.getpid()),
            )
        self._starts = 0

    def wait_until_up(self) -> None:
        """Wait until it has started once more and can be logged in to."""
        self._starts += 1
        for _ in range(STARTS - 1):
            if self._is_up_in_time():
                return
            self._reset()
        assert self._is_up_in_time(), f"the guest does not start:\n{self.console[-2000:]}"

    @property
    def console(self) -> str:
        """Everything that its kernel and its first process have said."""
        return self._log.read_text(errors="replace")

    def ssh(self, command: str, content: bytes = b"", seconds: float = COMMAND_S) -> subprocess.CompletedProcess[bytes]:
        """Have root's shell do something, `content` being its standard input."""
        return subprocess.run([*self._ssh(), command], input=content, capture_output=True, check=False, timeout=seconds)

    def says(self, command: str, content: bytes = b"", seconds: float = COMMAND_S) -> str:
        """What such a command prints; it must succeed."""
        done = self.ssh(command, content, seconds)
        assert done.returncode == 0, f"{command}: {done.returncode}: {done.stderr.decode()}"
        return done.stdout.decode().strip()

    def write(self, path: str, value: str) -> str:
        """Write to a file as a kernel's file is written to, and return what was refused; empty when nothing was."""
        program = f"import os; os.write(os.open({path!r}, os.O_WRONLY), {value.encode()!r})"
        done = self.ssh(f"python3 -c {shlex.quote(program)}")
        return done.stderr.decode().strip().rpartition("\n")[2] if done.returncode else ""

    def read(self, *paths: str) -> dict[str, str]:
        """The lines of files, by path; patterns of the shell are welcome, files that cannot be read are left out."""
        lines = self.says(f"grep -rs . {' '.join(paths)} || true").splitlines()
        return dict(line.partition(":")[::2] for line in lines)

    def restart(self) -> None:
        """Press the machine's reset button, with all that is written safe on its disk."""
        self.says("sync")
        self.reset()

    def reset(self) -> None:
        """Press the machine's reset button, whatever it is doing."""
        self._hang_up()
        self._reset()
        self.wait_until_up()

    def _is_up_in_time(self) -> bool:
        deadline = time.monotonic() + self._hardware.start_s
        while self.console.count(LISTENS) < self._starts:
            assert self._process.poll() is None, (self._folder / "qemu.log").read_text()
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return True

    def _reset(self) -> None:
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(str(self._folder / "monitor"))
            monitor.sendall(b"system_reset\n")
            # It greets, repeats the command and prompts again once that is done.
            said = b""
            while said.count(b"(qemu)") < 2:
                part = monitor.recv(4096)
                assert part, "the guest has ended"
                said += part

    def end(self) -> None:
        """End it; nothing remains."""
        self._hang_up()
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def reached_by(self) -> dict[str, object]:
        """The variables of Ansible by which it is reached, but for the user."""
        return {
            "ansible_host": ADDRESS,
            "ansible_port": self.port,
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_private_key_file": str(self._key),
            "ansible_ssh_common_args": f"-F none -o UserKnownHostsFile={self._known_hosts} -o IdentitiesOnly=yes",
            "ansible_control_path": f"{self._folder}/%%C",
        }

    def inventory(self, **variables: object) -> Path:
        """An inventory of this one machine, with what is asked of it."""
        root = {"ansible_user": "root", "millrace_user": "root", "millrace_service_manager": "none"}
        path = self._folder / "guest.yml"
        path.write_text(yaml.safe_dump({"workers": {"hosts": {"guest": self.reached_by() | root | variables}}}))
        return path

    def _ssh(self) -> list[str]:
        options = {
            "UserKnownHostsFile": self._known_hosts,
            "IdentitiesOnly": "yes",
            "BatchMode": "yes",
            "ControlMaster": "auto",
            "ControlPersist": "60",
            "ControlPath": f"{self._folder}/%C",
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return ["ssh", "-F", "none", "-i", str(self._key), *words, "-p", str(self.port), f"root@{ADDRESS}"]

    def _hang_up(self) -> None:
        """End the connections that wait for a next command: a machine that starts anew knows nothing of them."""
        subprocess.run([*self._ssh(), "-O", "exit"], capture_output=True, check=False, timeout=COMMAND_S)

    def _command(self, made: Image) -> list[str]:
        restrict = "off" if self._hardware.reaches_out else "on"
        return [
            "qemu-system-x86_64",
            *("-accel", "tcg,thread=single", "-cpu", "Skylake-Client-v3"),
            *("-smp", "4,sockets=1,cores=2,threads=2", "-m", str(self._hardware.memory_mb)),
            *("-nodefaults", "-display", "none", "-serial", f"file:{self._log}"),
            *("-monitor", f"unix:{self._folder}/monitor,server=on,wait=off"),
            *("-kernel", str(made.kernel), "-initrd", str(made.initramfs)),
            *("-append", " ".join([KERNEL_WORDS, *self._hardware.words])),
            *("-drive", f"file={made.disk},if=virtio,format=raw,snapshot=on"),
            *("-netdev", f"user,id=net,restrict={restrict},hostfwd=tcp:{ADDRESS}:{self.port}-:22"),
            *("-device", "virtio-net-pci,netdev=net,romfile="),
            *("-acpitable", f"file={made.tables}"),
            *self._hardware.devices,
        ]


@contextmanager
def guest(image: Image, hardware: Hardware = SMALL) -> Iterator[Guest]:
    """A guest that is up; it ends with the block, and with this process whatever ends that."""
    with tempfile.TemporaryDirectory(prefix="millrace-vm-") as folder:
        made = Guest(image, Path(folder), hardware)
        try:
            made.wait_until_up()
            yield made
        finally:
            made.end()
