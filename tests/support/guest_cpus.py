"""CPUs of a guest: files of its kernel, and the program `agents.cpu` that sets them there."""

import json
import shlex
import time
from typing import Any

from ansible_modules import plugin
from guest import Guest

CPU = "/sys/devices/system/cpu"
FILES = (
    f"{CPU}/cpu*/online",
    f"{CPU}/smt/control",
    f"{CPU}/cpufreq/policy*/scaling_governor",
    f"{CPU}/cpufreq/policy*/scaling_m??_freq",
)
FOLDER = "/var/lib/agents-cpu"
PYTHON = f"PYTHONPATH={FOLDER} python3 -P"

HOLDER = """\
import sys, time
from agents.cpu.control import CpuControl
from agents.cpu.request import CpuRequest
from agents.host_files import HostFiles
with CpuControl(HostFiles(), "the campaign of alice") as control:
    answer = control.apply(CpuRequest.from_document(%r))
    print("held" if answer.ok else answer.to_document(), flush=True)
    time.sleep(3600)
"""
"""What a campaign does on a node: set CPUs and hold them."""


class GuestCpus:
    """CPUs of a running guest."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        archive = plugin("lookup_plugins", "millrace_archive").archive()
        # Unpacked, the program starts faster: Python caches the bytecode.
        guest.output_of(f"cat >{FOLDER}.zip; python3 -m zipfile -e {FOLDER}.zip {FOLDER}", archive)

    def settings(self) -> dict[str, str]:
        """Return the kernel's settings; those of offline cores are left out."""
        return {path.removeprefix(f"{CPU}/"): value for path, value in self._guest.read(*FILES).items()}

    def online(self) -> str:
        """Return the kernel's list of online CPUs."""
        return self._guest.output_of(f"cat {CPU}/online")

    def run(self, verb: str, status: int = 0, **request: Any) -> dict[str, Any]:
        """Run the program with one request; return its answer and check its exit status."""
        done = self._guest.ssh(f"{PYTHON} -m agents.cpu {verb}", json.dumps(request).encode())
        assert done.returncode == status, (done.stdout.decode(), done.stderr.decode())
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def hold(self, **settings: Any) -> int:
        """Set CPUs in a process that holds them, as a campaign does; return its process id."""
        program = shlex.quote(HOLDER % settings)
        pid = self._guest.output_of(f"{PYTHON} -c {program} >/run/holder.log 2>&1 </dev/null & echo $!")
        assert self.wait_for("test -s /run/holder.log"), "nothing is set"
        assert self._guest.output_of("cat /run/holder.log") == "held"
        return int(pid)

    def wait_for(self, command: str, seconds: float = 120) -> bool:
        """Return whether a command succeeds before the timeout."""
        deadline = time.monotonic() + seconds
        while self._guest.ssh(command).returncode:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.5)
        return True
