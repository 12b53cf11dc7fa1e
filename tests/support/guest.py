"""Virtual machine with a kernel of its own, reached over SSH on a port of 127.0.0.1.

Its processors are emulated (qemu's TCG); it is therefore the same machine on every host, and slow. It has two cores
with two threads each, adjustable clocks, and a disk that keeps writes until the process ends. The rest is its
`Hardware`.

On busy hosts a boot may hang; the machine is then reset. One boot in twenty hung while the kernel trusted the
processor's time stamp counter (TSC), which it calibrates at boot; `tsc=unstable` disables that.
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
LISTENING_MESSAGE = "Server listening on 0.0.0.0 port 22."
"""Message of its SSH server, once per boot."""

COMMAND_S, END_S = 300.0, 20.0
"""Timeouts of a command and of the shutdown; a busy host is slow."""

KERNEL_ARGUMENTS = "console=ttyS0 loglevel=4 net.ifnames=0 panic=1 mitigations=off tsc=unstable"

STARTS = 4
"""Maximum number of boot attempts."""


class Hardware(NamedTuple):
    """Differences between guests in addition to their images.

    Attributes:
        memory_mb: memory, in units of 1024**2 bytes.
        start_s: timeout of a boot.
        kernel_arguments: additional kernel arguments.
        has_internet: whether it reaches what its host reaches; otherwise only its SSH server is reachable.
        devices: additional devices, as qemu arguments.
    """

    memory_mb: int = 512
    start_s: float = 120.0
    kernel_arguments: tuple[str, ...] = ()
    has_internet: bool = False
    devices: tuple[str, ...] = ()


SMALL = Hardware()


class Guest:
    """A running guest.

    Args:
        image: its image.
        folder: for its log, its inventories and the sockets of SSH connections; a short path.
        hardware: its hardware.
    """

    def __init__(self, image: Image, folder: Path, hardware: Hardware = SMALL) -> None:
        self._folder = folder
        self._hardware = hardware
        # Another test run may remove an outdated image.
        self._key = Path(shutil.copy(image.key, folder))
        self._log = folder / "console.log"
        self._known_hosts = folder / "known_hosts"
        with socket.create_server((ADDRESS, 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self._known_hosts.write_text(f"[{ADDRESS}]:{self.port} {image.host_key}\n")
        self._log.touch()
        with (folder / "qemu.log").open("wb") as output:
            self._process = subprocess.Popen(
                self._command(image),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=end_with(os.getpid()),
            )
        self._starts = 0

    def wait_until_up(self) -> None:
        """Wait for one more boot until it accepts logins."""
        self._starts += 1
        for _ in range(STARTS - 1):
            if self._is_up_in_time():
                return
            self._reset()
        assert self._is_up_in_time(), f"the guest does not start:\n{self.console[-2000:]}"

    @property
    def console(self) -> str:
        """Output of its kernel and its first process."""
        return self._log.read_text(errors="replace")

    def ssh(self, command: str, content: bytes = b"", seconds: float = COMMAND_S) -> subprocess.CompletedProcess[bytes]:
        """Run a shell command as root, with `content` as its standard input."""
        return subprocess.run([*self._ssh(), command], input=content, capture_output=True, check=False, timeout=seconds)

    def output_of(self, command: str, content: bytes = b"", seconds: float = COMMAND_S) -> str:
        """Return the output of a command that must succeed."""
        done = self.ssh(command, content, seconds)
        assert done.returncode == 0, f"{command}: {done.returncode}: {done.stderr.decode()}"
        return done.stdout.decode().strip()

    def write(self, path: str, value: str) -> str:
        """Write to a file of the kernel with one write call; return the error message, empty on success."""
        program = f"import os; os.write(os.open({path!r}, os.O_WRONLY), {value.encode()!r})"
        done = self.ssh(f"python3 -c {shlex.quote(program)}")
        return done.stderr.decode().strip().rpartition("\n")[2] if done.returncode else ""

    def read(self, *paths: str) -> dict[str, str]:
        """Return the lines of files by path; shell patterns are allowed, unreadable files are left out."""
        lines = self.output_of(f"grep -rs . {' '.join(paths)} || true").splitlines()
        return dict(line.partition(":")[::2] for line in lines)

    def restart(self) -> None:
        """Reset the machine after flushing its disk."""
        self.output_of("sync")
        self.reset()

    def reset(self) -> None:
        """Reset the machine immediately."""
        self._hang_up()
        self._reset()
        self.wait_until_up()

    def _is_up_in_time(self) -> bool:
        deadline = time.monotonic() + self._hardware.start_s
        while self.console.count(LISTENING_MESSAGE) < self._starts:
            assert self._process.poll() is None, (self._folder / "qemu.log").read_text()
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return True

    def _reset(self) -> None:
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(str(self._folder / "monitor"))
            monitor.sendall(b"system_reset\n")
            # The monitor greets, echoes the command, and prompts again once it is executed.
            output = b""
            while output.count(b"(qemu)") < 2:
                part = monitor.recv(4096)
                assert part, "the guest has ended"
                output += part

    def end(self) -> None:
        """Shut it down; no process remains."""
        self._hang_up()
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def ansible_variables(self) -> dict[str, object]:
        """Return the Ansible variables of its SSH connection, without the user."""
        return {
            "ansible_host": ADDRESS,
            "ansible_port": self.port,
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_private_key_file": str(self._key),
            "ansible_ssh_common_args": f"-F none -o UserKnownHostsFile={self._known_hosts} -o IdentitiesOnly=yes",
            "ansible_control_path": f"{self._folder}/%%C",
        }

    def inventory(self, **variables: object) -> Path:
        """Write an inventory of this machine with the given variables."""
        root = {"ansible_user": "root", "millrace_user": "root", "millrace_service_manager": "none"}
        path = self._folder / "guest.yml"
        path.write_text(yaml.safe_dump({"workers": {"hosts": {"guest": self.ansible_variables() | root | variables}}}))
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
        kernel_arguments = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return ["ssh", "-F", "none", "-i", str(self._key), *kernel_arguments, "-p", str(self.port), f"root@{ADDRESS}"]

    def _hang_up(self) -> None:
        """Close persistent connections, which a restarted machine does not know."""
        subprocess.run([*self._ssh(), "-O", "exit"], capture_output=True, check=False, timeout=COMMAND_S)

    def _command(self, made: Image) -> list[str]:
        restrict = "off" if self._hardware.has_internet else "on"
        return [
            "qemu-system-x86_64",
            *("-accel", "tcg,thread=single", "-cpu", "Skylake-Client-v3"),
            *("-smp", "4,sockets=1,cores=2,threads=2", "-m", str(self._hardware.memory_mb)),
            *("-nodefaults", "-display", "none", "-serial", f"file:{self._log}"),
            *("-monitor", f"unix:{self._folder}/monitor,server=on,wait=off"),
            *("-kernel", str(made.kernel), "-initrd", str(made.initramfs)),
            *("-append", " ".join([KERNEL_ARGUMENTS, *self._hardware.kernel_arguments])),
            *("-drive", f"file={made.disk},if=virtio,format=raw,snapshot=on"),
            *("-netdev", f"user,id=net,restrict={restrict},hostfwd=tcp:{ADDRESS}:{self.port}-:22"),
            *("-device", "virtio-net-pci,netdev=net,romfile="),
            *("-acpitable", f"file={made.tables}"),
            *self._hardware.devices,
        ]


@contextmanager
def guest(image: Image, hardware: Hardware = SMALL) -> Iterator[Guest]:
    """Start a guest; it ends with the block, and with this process."""
    with tempfile.TemporaryDirectory(prefix="millrace-vm-") as folder:
        made = Guest(image, Path(folder), hardware)
        try:
            made.wait_until_up()
            yield made
        finally:
            made.end()
