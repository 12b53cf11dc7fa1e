"""Measurement of the double-precision FLOPs that a core completes per cycle.

Two loops of machine code are timed. In the first, fused multiply-adds on ten registers are independent of each other,
so that every unit of the core is busy. In the second, each instruction depends on the one before it and takes one
cycle, which counts cycles without access to a hardware counter. The ratio does not depend on the clock. Machine code is
used because nodes have no compiler, and array libraries would measure memory and their own overhead.

Encodings: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, sections 2.3 (VEX) and 2.7 (EVEX).
"""

import ctypes
import mmap
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

ACCUMULATORS, FACTORS = 10, (10, 11)
"""Ten accumulators hide a latency of five cycles on two units. Registers 10 and 11 hold the factors."""

UNROLLED = 4
CHAINED = 64
"""Instructions per iteration of the second loop."""

ROUNDS, ROUND_S = 50, 0.001
"""Rounds of each loop, alternating; the shortest counts, because all disturbances make a round longer. A round is
shorter than a time slice of the scheduler."""

_COUNT_DOWN, _RETURN = bytes.fromhex("48ffcf"), bytes.fromhex("c5f877 c3")
"""dec rdi; vzeroupper, ret."""

_EXCLUSIVE_OR = bytes.fromhex("4831c8")
"""xor rax, rcx: one cycle on every x86-64, and not eliminated by register renaming, as additions may be."""


@dataclass(frozen=True)
class Measured:
    """Result of the measurement; None, with the reason, if it is not possible.

    Attributes:
        flops_per_cycle: double precision; a fused multiply-add counts as two.
        ghz: clock of the core during the measurement.
        reason: why there is no result; empty otherwise.
    """

    flops_per_cycle: float | None
    ghz: float | None
    reason: str = ""


def measure(architecture: str, flags: Collection[str]) -> Measured:
    """Time the loops on one core, for about 0.1 s.

    Args:
        architecture: the kernel's name of it.
        flags: feature flags of the CPU, as named by the kernel.
    """
    if architecture != "x86_64":
        return Measured(None, None, f"there is no loop for {architecture}")
    if {"avx512f", "fma"} <= set(flags):
        lanes, multiply_add = 8, _zmm
    elif {"avx2", "fma"} <= set(flags):
        lanes, multiply_add = 4, _ymm
    else:
        return Measured(None, None, "the processor has no fused multiply-add")
    body = b"".join(multiply_add(register) for register in range(ACCUMULATORS)) * UNROLLED
    # Clear the registers, because leftover subnormal numbers would be slow.
    clear = b"".join(map(_cleared, range(max(FACTORS) + 1)))
    try:
        arithmetic, chain = _callable(clear, body), _callable(b"", _EXCLUSIVE_OR * CHAINED)
    except OSError as fault:
        return Measured(None, None, f"machine code may not be run: {fault.strerror}")
    flops = 2 * lanes * ACCUMULATORS * UNROLLED
    per_flop, per_cycle = _best((arithmetic, flops), (chain, CHAINED))
    return Measured(round(per_cycle / per_flop, 2), round(1e-9 / per_cycle, 3))


def _best(*loops: tuple[Callable[[int], object], int]) -> list[float]:
    """Return the seconds per item of each loop; the number is its items per iteration."""
    turns = []
    for loop, _ in loops:
        count = 1000
        while _timed(loop, count) < ROUND_S:
            count *= 2
        turns.append(count)
    shortest = [float("inf")] * len(loops)
    for _ in range(ROUNDS):
        for at, ((loop, items), count) in enumerate(zip(loops, turns, strict=True)):
            shortest[at] = min(shortest[at], _timed(loop, count) / (count * items))
    return shortest


def _timed(loop: Callable[[int], object], count: int) -> float:
    begun = time.perf_counter()
    loop(count)
    return time.perf_counter() - begun


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
