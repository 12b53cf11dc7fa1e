"""The CPUs of a guest: what its kernel says of them, and the program `agents.cpu` that sets them there."""

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
"""A campaign's part on a node: it sets CPUs and holds them."""


class GuestCpus:
    """The CPUs of a guest that is up."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        archive = plugin("lookup_plugins", "millrace_archive").archive()
        # Out of its archive the program starts faster: Python keeps what it has compiled.
        guest.says(f"cat >{FOLDER}.zip; python3 -m zipfile -e {FOLDER}.zip {FOLDER}", archive)

    def settings(self) -> dict[str, str]:
        """What the kernel's files say; those of a core that is off are left out."""
        return {path.removeprefix(f"{CPU}/"): value for path, value in self._guest.read(*FILES).items()}

    def online(self) -> str:
        """The kernel's list of CPUs on line."""
        return self._guest.says(f"cat {CPU}/online")

    def ask(self, verb: str, status: int = 0, **request: Any) -> dict[str, Any]:
        """The program's answer to one request, which must end with this exit status."""
        done = self._guest.ssh(f"{PYTHON} -m agents.cpu {verb}", json.dumps(request).encode())
        assert done.returncode == status, (done.stdout.decode(), done.stderr.decode())
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def hold(self, **settings: Any) -> int:
        """Set CPUs as a campaign does, in a process that holds them; its id."""
        program = shlex.quote(HOLDER % settings)
        pid = self._guest.says(f"{PYTHON} -c {program} >/run/holder.log 2>&1 </dev/null & echo $!")
        assert self.eventually("test -s /run/holder.log"), "nothing is set"
        assert self._guest.says("cat /run/holder.log") == "held"
        return int(pid)

    def eventually(self, command: str, seconds: float = 120) -> bool:
        """Whether a command succeeds before long."""
        deadline = time.monotonic() + seconds
        while self._guest.ssh(command).returncode:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.5)
        return True
