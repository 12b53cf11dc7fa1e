"""Settings of a host that make measurements vary: governor, turbo, SMT, swap and transparent huge pages."""

import re

from agents.cpu.cores import SMT_CONTROL
from agents.cpu.feature import read_view
from agents.cpu.plan import TURBO
from agents.host_files import HostFiles

SWAPS = "proc/swaps"
HUGE_PAGES = "sys/kernel/mm/transparent_hugepage/enabled"


def noise_settings(host: HostFiles) -> dict[str, str | None]:
    """Return the settings as text; None for what the host does not report.

    `governor` lists the different governors of all policies, `turbo` (`on`, `off`) is whether clocks above the base are
    allowed, `smt` the state in the kernel's file (`on`, `off`, `notsupported`, ...), `swap` (`on`, `off`) whether there
    is any, and `huge_pages` the policy for transparent huge pages (`always`, `madvise`, `never`).
    """
    governors = sorted({policy.governor for policy in read_view(host).policies if policy.governor})
    swaps = host.read_if_there(SWAPS)
    huge_pages = re.search(r"\[(\w+)\]", host.read_if_there(HUGE_PAGES) or "")
    return {
        "governor": ", ".join(governors) or None,
        "turbo": _on_or_off(TURBO.state(host)),
        "smt": host.read_if_there(SMT_CONTROL) or None,
        # The first line has the names of columns.
        "swap": _on_or_off(len(swaps.splitlines()) > 1) if swaps else None,
        "huge_pages": huge_pages[1] if huge_pages else None,
    }


def _on_or_off(state: bool | None) -> str | None:
    return None if state is None else "on" if state else "off"
