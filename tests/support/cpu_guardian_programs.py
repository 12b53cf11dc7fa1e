"""Programs for tests of CPU control on the fake kernel: a guardian, and a campaign that kills itself.

`python cpu_guardian_programs.py ROOT` runs the guardian. `python cpu_guardian_programs.py ROOT campaign N` sets CPUs
and sends itself SIGKILL before write N; if there are fewer writes, it exits and prints their number.
"""

import os
import signal
import sys
from pathlib import Path

from fake_kernel import FakeKernel

from agents.cpu.control import CpuControl, watch
from agents.cpu.request import CpuRequest

GUARDIAN = (sys.executable, __file__)

REQUESTS = (CpuRequest(cores=2, governor="performance", min_ghz=1.2, max_ghz=1.2), CpuRequest(turbo=False, cores=3))


def campaign(root: Path, death: int) -> None:
    """Set CPUs; send SIGKILL to this process before write `death`."""

    def before_write(number: int, path: str) -> None:
        if number == death:
            os.kill(os.getpid(), signal.SIGKILL)

    kernel = FakeKernel(root, before_write)
    with CpuControl(kernel, "a campaign that is killed", GUARDIAN) as control:
        for request in REQUESTS:
            control.apply(request)
        control.set_frequency(1_600_000_000)
    print(len(kernel.writes))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        sys.exit(watch(FakeKernel(Path(sys.argv[1]))))
    campaign(Path(sys.argv[1]), int(sys.argv[3]))
