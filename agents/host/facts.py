"""Facts about a host: for a node agent's `Hello`, and for the computing-power index. Unknown ones are None.

`python -P -m agents.host.facts` writes those for the index as JSON. They come from the host's files, including the
overlaid ones of a namespace, and from a measurement of its core. They are gathered when a host is provisioned, stored
beside the inventory, and independent of runs.

The double-precision FLOPs that a core completes per cycle are measured by two timed loops of machine code. In the
first, fused multiply-adds on ten registers are independent of each other, so that every unit of the core is busy. In
the second, each instruction depends on the one before it and takes one cycle, which counts cycles without access to a
hardware counter. The ratio does not depend on the clock. Machine code is used because nodes have no compiler, and array
libraries would measure memory and their own overhead. Encodings: Intel 64 and IA-32 Architectures Software Developer's
Manual, volume 2, sections 2.3 (VEX) and 2.7 (EVEX).
"""

import ctypes
import json
import mmap
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from agents.cpu.cores import SMT_CONTROL
from agents.cpu.feature import read_view
from agents.cpu.plan import TURBO
from agents.cpu.plan import facts as cpu_facts
from agents.host_files import HostFiles
from inventory.power_index import CLOCK_ERROR, FLOPS_ERROR, isa_flops
from inventory.times import utc_stamp

_CONTAINER_SIGNS = (Path("/.dockerenv"), Path("/run/.containerenv"), Path("/run/systemd/container"))
_CPUINFO = Path("/proc/cpuinfo")
_DMI = Path("/sys/class/dmi/id")

ACCUMULATORS, FACTORS = 10, (10, 11)
"""Ten accumulators hide a latency of five cycles on two units. Registers 10 and 11 hold the factors."""

UNROLLED = 4
CHAINED = 64
"""Instructions per iteration of the second loop."""

BATCHES, ROUNDS, ROUND_S = 5, 10, 0.001
"""Batches of rounds of each loop, alternating; the shortest round counts, because all disturbances make a round longer.
A round is shorter than a time slice of the scheduler. The error is the largest difference of a batch to all of them."""

_COUNT_DOWN, _RETURN = bytes.fromhex("48ffcf"), bytes.fromhex("c5f877 c3")
"""dec rdi; vzeroupper, ret."""

_EXCLUSIVE_OR = bytes.fromhex("4831c8")
"""xor rax, rcx: one cycle on every x86-64, and not eliminated by register renaming, as additions may be."""

COUNTERS = "sys/class/powercap"


def gather() -> dict[str, Any]:
    """Return facts about this machine, JSON types only.

    `clock` identifies the monotonic clock: agents with the same value read the same clock, so that their times can be
    compared directly. `bogomips` and `isa` are as in `inventory.cluster.Facts`, the last
    five as in `agents.host.facts`.
    """
    cpu = _first_cpu(_text(_CPUINFO) or "")
    flags = (cpu.get("flags") or cpu.get("Features") or "").split()
    bogomips = float(cpu.get("bogomips") or cpu.get("BogoMIPS") or 0)
    return {
        "hostname": platform.node(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cores_online": os.sysconf("SC_NPROCESSORS_ONLN"),
        "cpu_model": cpu.get("model name"),
        "bogomips": bogomips or None,
        "isa": flags or None,
        "memory_bytes": psutil.virtual_memory().total,
        "clock": _clock(),
        "virtualisation": _virtualisation("hypervisor" in flags),
        **noise_settings(HostFiles()),
    }


def _clock() -> str | None:
    boot = HostFiles().boot_id
    if boot is None:
        return None
    try:
        # A time namespace shifts CLOCK_MONOTONIC; kernels without time namespaces have a single clock.
        space = str(Path("/proc/self/ns/time").readlink())
    except OSError:
        space = "time:[initial]"
    return f"monotonic {boot} {space}"


def _virtualisation(hypervisor: bool) -> str | None:
    """Return a description of virtualisation: the firmware's name of a virtual machine, and whether in a container."""
    hints = []
    if hypervisor:
        names = (_text(_DMI / name) for name in ("sys_vendor", "product_name"))
        hints.append(" ".join(["virtual machine", *filter(None, names)]))
    if any(sign.exists() for sign in _CONTAINER_SIGNS):
        hints.append("container")
    return ", ".join(hints) or None


def _first_cpu(cpuinfo: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in cpuinfo.partition("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None


@dataclass(frozen=True)
class MeasuredFlops:
    """Result of the measurement; None, with the reason, if it is not possible.

    Attributes:
        flops_per_cycle: double precision; a fused multiply-add counts as two.
        ghz: clock of the core during the measurement.
        flops_error, ghz_error: their relative errors.
        reason: why there is no result; empty otherwise.
    """

    flops_per_cycle: float | None = None
    ghz: float | None = None
    flops_error: float | None = None
    ghz_error: float | None = None
    reason: str = ""


def time_loops(architecture: str, flags: Collection[str]) -> MeasuredFlops:
    """Time the loops on one core, for about 0.1 s.

    Args:
        architecture: the kernel's name of it.
        flags: feature flags of the CPU, as named by the kernel.
    """
    if architecture != "x86_64":
        return MeasuredFlops(reason=f"there is no loop for {architecture}")
    if {"avx512f", "fma"} <= set(flags):
        lanes, multiply_add = 8, _zmm
    elif {"avx2", "fma"} <= set(flags):
        lanes, multiply_add = 4, _ymm
    else:
        return MeasuredFlops(reason="the processor has no fused multiply-add")
    body = b"".join(multiply_add(register) for register in range(ACCUMULATORS)) * UNROLLED
    # Clear the registers, because leftover subnormal numbers would be slow.
    clear = b"".join(map(_cleared, range(max(FACTORS) + 1)))
    try:
        arithmetic, chain = _callable(clear, body), _callable(b"", _EXCLUSIVE_OR * CHAINED)
    except OSError as fault:
        return MeasuredFlops(reason=f"machine code may not be run: {fault.strerror}")
    flops = 2 * lanes * ACCUMULATORS * UNROLLED
    batches = _batches((arithmetic, flops), (chain, CHAINED))
    per_flop, per_cycle = (min(times) for times in zip(*batches, strict=True))
    rates, clocks = [cycle / flop for flop, cycle in batches], [1e-9 / cycle for _, cycle in batches]
    rate, clock = per_cycle / per_flop, 1e-9 / per_cycle
    errors = _error(rate, rates, FLOPS_ERROR), _error(clock, clocks, CLOCK_ERROR)
    return MeasuredFlops(round(rate, 2), round(clock, 3), *errors)


def _error(value: float, of_batches: Sequence[float], least: float) -> float:
    return round(max(least, *(abs(other - value) / value for other in of_batches)), 3)


def _batches(*loops: tuple[Callable[[int], object], int]) -> list[list[float]]:
    """Return the seconds per item of each loop, in every batch; the number is its items per iteration."""
    turns = []
    for loop, _ in loops:
        count = 1000
        while _timed(loop, count) < ROUND_S:
            count *= 2
        turns.append(count)
    batches = [[float("inf")] * len(loops) for _ in range(BATCHES)]
    for shortest in batches:
        for _ in range(ROUNDS):
            for at, ((loop, items), count) in enumerate(zip(loops, turns, strict=True)):
                shortest[at] = min(shortest[at], _timed(loop, count) / (count * items))
    return batches


def _timed(loop: Callable[[int], object], count: int) -> float:
    begin_s = time.perf_counter()
    loop(count)
    return time.perf_counter() - begin_s


def _callable(before: bytes, body: bytes) -> Callable[[int], object]:
    """Return a function that runs `body` as many times as its argument, at least once."""
    turn = body + _COUNT_DOWN
    jump = b"\x0f\x85" + (-(len(turn) + 6)).to_bytes(4, "little", signed=True)  # jnz to the body
    code = before + turn + jump + _RETURN
    pages = mmap.mmap(-1, len(code), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    pages.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    function = ctypes.CFUNCTYPE(None, ctypes.c_uint64)(address)

    def run(count: int) -> None:
        function(count)

    run.__dict__["pages"] = pages  # as long as the function lives
    return run


def _ymm(register: int) -> bytes:
    """vfmadd231pd ymm, ymm10, ymm11: VEX.256.66.0F38.W1 B8 /r."""
    left, right = FACTORS
    prefix = (register < 8) << 7 | 1 << 6 | (right < 8) << 5 | 0b00010
    return bytes([0xC4, prefix, 1 << 7 | (~left & 15) << 3 | 0b101, 0xB8, _operands(register, right)])


def _zmm(register: int) -> bytes:
    """vfmadd231pd zmm, zmm10, zmm11: EVEX.512.66.0F38.W1 B8 /r."""
    left, right = FACTORS
    prefix = (register < 8) << 7 | 1 << 6 | (right < 8) << 5 | 1 << 4 | 0b010
    return bytes([0x62, prefix, 1 << 7 | (~left & 15) << 3 | 0b101, 0b0100_1000, 0xB8, _operands(register, right)])


def _cleared(register: int) -> bytes:
    """vxorps xmm, xmm, xmm, which clears all of the register: VEX.128.0F.WIG 57 /r."""
    prefix = (register < 8) << 7 | 1 << 6 | (register < 8) << 5 | 0b00001
    return bytes([0xC4, prefix, (~register & 15) << 3, 0x57, _operands(register, register)])


def _operands(register: int, other: int) -> int:
    return 0b11 << 6 | (register & 7) << 3 | (other & 7)


def index_facts(host: HostFiles) -> dict[str, Any]:
    """Return facts about this host, JSON types only; None for unknown ones.

    `ghz` is the highest clock that cpufreq allows now; without cpufreq, the measured one. `flops_per_cycle` is derived
    from the CPU's flags. `frequencies_hz` are the entries of the driver's table within the current limits.
    """
    about, cpu = gather(), cpu_facts(host)
    flags = about["isa"] or []
    measured = time_loops(about["architecture"], flags)
    limits = [(policy["max_hz"], len(policy["cpus"])) for policy in cpu["policies"] if policy["max_hz"]]
    clock = sum(hz * cpus for hz, cpus in limits) / sum(cpus for _, cpus in limits) / 1e9 if limits else measured.ghz
    on_line = set(cpu["online"])
    in_use = [cores for cores in cpu["cores_of_sockets"].values() if any(on_line.intersection(core) for core in cores)]
    return {
        "gathered_at": utc_stamp("seconds"),
        "hostname": about["hostname"],
        "kernel": about["kernel"],
        "boot_id": host.boot_id,
        "architecture": about["architecture"],
        "cpu_model": about["cpu_model"],
        "virtualisation": about["virtualisation"],
        "python": sys.version.split()[0],
        "sockets": len(in_use),
        "cores": cpu["cores_online"],
        "threads": len(on_line),
        "ghz": None if clock is None else round(clock, 3),
        "ghz_error": None if limits else measured.ghz_error,
        "ghz_source": "cpufreq" if limits else "measured" if measured.ghz else None,
        "ram_gb": round(about["memory_bytes"] / 1024**3, 2),
        "isa": about["isa"],
        "bogomips": about["bogomips"],
        "flops_per_cycle": isa_flops(flags),
        "measured_flops_per_cycle": measured.flops_per_cycle,
        "measured_flops_error": measured.flops_error,
        "measured_ghz": measured.ghz,
        "not_measured": measured.reason or None,
        "driver": cpu["driver"],
        "governor": cpu["governor"],
        "governors": cpu["governors"],
        "turbo": cpu["turbo"],
        "smt": cpu["smt"],
        "frequencies_hz": _allowed(cpu) or None,
        "unavailable": cpu["unavailable"],
        "energy_counters": [name for name in host.names(COUNTERS) if host.exists(f"{COUNTERS}/{name}/energy_uj")],
        "powertop": shutil.which("powertop", path=f"{os.environ.get('PATH', '')}:/usr/sbin"),
    }


def _allowed(cpu: Mapping[str, Any]) -> list[int]:
    low = max((policy["min_hz"] or 0 for policy in cpu["policies"]), default=0)
    high = min((policy["max_hz"] or sys.maxsize for policy in cpu["policies"]), default=sys.maxsize)
    return [hz for hz in cpu["frequencies_hz"] if low <= hz <= high]


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


if __name__ == "__main__":
    json.dump(index_facts(HostFiles(Path("/"))), sys.stdout)
