"""Design power (TDP) of processors, from which a model without calibration is derived.

Watts and hardware threads are from the manufacturers' specifications: for Intel `TDP` and `Total Threads` at
ark.intel.com, for AMD `Default TDP` and `# of Threads` at www.amd.com/en/products/specifications. Every entry was
compared with copies of both. For a processor that is not in the table the model has no parameters, and energy is
missing with that reason.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from agents.power.host import MeteredHost


class Chip(NamedTuple):
    """Design power and number of hardware threads of a processor."""

    watts: float
    threads: int


CHIPS: Mapping[str, Chip] = {
    "Core i5-3470": Chip(77, 4),
    "Core i5-6500": Chip(65, 4),
    "Core i5-8250U": Chip(15, 8),
    "Core i5-8500": Chip(65, 6),
    "Core i7-3770": Chip(77, 8),
    "Core i7-4790": Chip(84, 8),
    "Core i7-6700": Chip(65, 8),
    "Core i7-7700": Chip(65, 8),
    "Core i7-8550U": Chip(15, 8),
    "Core i7-8700": Chip(65, 12),
    "Core i7-9700": Chip(65, 8),
    "Core i7-10700": Chip(65, 16),
    "Core i9-9900K": Chip(95, 16),
    "Xeon E5-2620 v4": Chip(85, 16),
    "Xeon E5-2630 v3": Chip(85, 16),
    "Xeon E5-2630 v4": Chip(85, 20),
    "Xeon E5-2650 v4": Chip(105, 24),
    "Xeon E5-2670": Chip(115, 16),
    "Xeon E5-2680 v3": Chip(120, 24),
    "Xeon E5-2680 v4": Chip(120, 28),
    "Xeon E5-2690 v4": Chip(135, 28),
    "Xeon Silver 4110": Chip(85, 16),
    "Xeon Silver 4114": Chip(85, 20),
    "Xeon Silver 4210": Chip(85, 20),
    "Xeon Silver 4216": Chip(100, 32),
    "Xeon Gold 6130": Chip(125, 32),
    "Xeon Gold 6148": Chip(150, 40),
    "Xeon Gold 6154": Chip(200, 36),
    "Xeon Gold 6230": Chip(125, 40),
    "Xeon Gold 6248": Chip(150, 40),
    "Xeon Platinum 8160": Chip(150, 48),
    "Xeon Platinum 8280": Chip(205, 56),
    "Xeon Platinum 8380": Chip(270, 80),
    "EPYC 7302": Chip(155, 32),
    "EPYC 7402": Chip(180, 48),
    "EPYC 7452": Chip(155, 64),
    "EPYC 7502": Chip(180, 64),
    "EPYC 7543": Chip(225, 64),
    "EPYC 7702": Chip(200, 128),
    "EPYC 7742": Chip(225, 128),
    "EPYC 7763": Chip(280, 128),
    "Ryzen 5 3600": Chip(65, 12),
    "Ryzen 7 3700X": Chip(65, 16),
    "Ryzen 7 5800X": Chip(105, 16),
    "Ryzen 9 3900X": Chip(105, 24),
    "Ryzen 9 5950X": Chip(105, 32),
}


class Design(NamedTuple):
    """Design power of all processors of a host, and a description of its origin."""

    watts: float
    words: str


def design_power(host: MeteredHost) -> Design | str:
    """Return the design power of a host's processors, or the reason why it is unknown.

    A virtual machine has a share of one chip: its number of CPUs divided by the chip's threads.
    """
    cpus = [_fields(block) for block in (host.read_if_there("proc/cpuinfo") or "").split("\n\n") if block.strip()]
    name = cpus[0].get("model name", "") if cpus else ""
    plain = re.sub(r"\((?:R|TM)\)|\bCPU\b|\bIntel\b|\bAMD\b", " ", name)
    words = re.sub(r"\s+", " ", plain).partition("@")[0].strip()
    known = [model for model in CHIPS if re.match(rf"{re.escape(model)}(?![\w-])", words)]
    # `Xeon E5-2670` must not match `Xeon E5-2670 v3`.
    known = [model for model in known if not re.match(rf"{re.escape(model)} v\d", words)]
    if not known:
        return f"the design power of {name or 'this processor'} is not known"
    chip = CHIPS[known[0]]
    if "hypervisor" in cpus[0].get("flags", "").split():
        share = len(cpus) / chip.threads
        words = f"{len(cpus)} of {chip.threads} threads of a chip"
    else:
        share = len({cpu.get("physical id", "0") for cpu in cpus})
        words = f"{share} chips" if share > 1 else "one chip"
    return Design(chip.watts * share, f"{known[0]}, {chip.watts:g} W, {words}")


def _fields(block: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in block.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}
