"""Modelled power: P = p_s + p_d (f / f_ref)^kappa u.

`u` is the busy share of all present CPUs, `f` their clock weighted by busy time, `f_ref` the highest clock. The
parameters come from a calibration (`millrace calibrate`), or from the inventory. Without either, they are derived from
the design power: 30 % static, 70 % dynamic, kappa 3, with an error of 50 %. For a processor whose design power is not
listed the model has no parameters, and energy is missing with that reason.
"""

import os
import re
from collections.abc import Mapping
from math import inf
from typing import NamedTuple

from agents.cpu.topology import Policy, read_policies, read_topology
from agents.host_files import ProbeResult
from agents.power.reader import Domain, MeteredHost, Reader, Reading
from inventory.times import NS
from inventory.values import EnergyModel

STAT = "proc/stat"

STATIC, DYNAMIC, KAPPA = 0.3, 0.7, 3.0
UNCALIBRATED_ERROR = 0.5

NOTHING_MEASURED = "nothing is measured: "
"""Prefix of the reader's finding; its parameters follow."""

SHORTEST_S = 0.09
"""CPU times have a resolution of 10 ms: over a shorter time than this, the last power is returned again."""


class UsageReading(NamedTuple):
    """CPU usage since the previous reading.

    Attributes:
        seconds: time since then.
        busy: busy share of all present CPUs; offline CPUs are idle.
        hz: mean clock, weighted by busy time; None when unknown.
    """

    seconds: float
    busy: float
    hz: float | None


class CpuUsage:
    """Repeated reading of a host's CPU usage."""

    def __init__(self, host: MeteredHost) -> None:
        """Take the first reading.

        Raises:
            OSError: CPU times cannot be read.
        """
        self._host = host
        topology = read_topology(host)
        self._policies = read_policies(host, topology.online)
        self._policy_of = {cpu: policy for policy in self._policies for cpu in policy.cpus}
        self._t_ns, self._busy_s = host.monotonic_ns(), busy_seconds(host)
        self._cpus = max(len(topology.present), len(self._busy_s))

    @property
    def highest_hz(self) -> float | None:
        """The highest clock of any CPU; None when unknown."""
        return highest_hz(self._policies)

    def read(self) -> UsageReading:
        """Return the usage since the previous reading.

        Raises:
            OSError: CPU times cannot be read.
        """
        t_ns, busy_s = self._host.monotonic_ns(), busy_seconds(self._host)
        seconds = (t_ns - self._t_ns) / NS
        used = {cpu: max(0.0, now - self._busy_s.get(cpu, now)) for cpu, now in busy_s.items()}
        self._t_ns, self._busy_s = t_ns, busy_s
        return UsageReading(seconds, min(1.0, sum(used.values()) / seconds / self._cpus), self._clock(used))

    def _clock(self, used_s: Mapping[int, float]) -> float | None:
        clocks: dict[str, float] = {}
        for policy in self._policies:
            text = self._host.read_if_there(policy.file("scaling_cur_freq"))
            if text and text.isdigit() and int(text):
                clocks[policy.name] = int(text) * 1000.0
        weights = {cpu: policy.name for cpu, policy in self._policy_of.items() if policy.name in clocks}
        if not weights:
            return None
        busy_s = sum(used_s.get(cpu, 0.0) for cpu in weights)
        if not busy_s:
            return sum(clocks.values()) / len(clocks)
        return sum(used_s.get(cpu, 0.0) * clocks[name] for cpu, name in weights.items()) / busy_s


def highest_hz(policies: tuple[Policy, ...]) -> float | None:
    """Return the highest clock of all policies; None when unknown."""
    known = [policy.highest * 1000.0 for policy in policies if policy.highest]
    return max(known, default=None)


def busy_seconds(host: MeteredHost) -> dict[int, float]:
    """Return CPU -> busy seconds since boot: user, nice, system and interrupts, without idle, iowait and steal.

    Raises:
        OSError: CPU times cannot be read.
    """
    ticks = os.sysconf("SC_CLK_TCK")
    seconds: dict[int, float] = {}
    for line in host.read(STAT).splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and len(fields) >= 7:
            user, nice, system, _idle, _iowait, irq, softirq = map(int, fields[:7])
            seconds[int(name[3:])] = (user + nice + system + irq + softirq) / ticks
    if not seconds:
        raise OSError(f"/{STAT} lists no CPU")
    return seconds


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
"""Watts and hardware threads from the manufacturers' specifications: for Intel `TDP` and `Total Threads` at
ark.intel.com, for AMD `Default TDP` and `# of Threads` at www.amd.com/en/products/specifications. Every entry was
compared with copies of both."""


class Design(NamedTuple):
    """Design power of all processors of a host, and a description of its origin."""

    watts: float
    description: str


def design_power(host: MeteredHost) -> Design | str:
    """Return the design power of a host's processors, or the reason why it is unknown.

    A virtual machine has a share of one chip: its number of CPUs divided by the chip's threads.
    """
    cpus = [_fields(block) for block in (host.read_if_there("proc/cpuinfo") or "").split("\n\n") if block.strip()]
    name = cpus[0].get("model name", "") if cpus else ""
    plain = re.sub(r"\((?:R|TM)\)|\bCPU\b|\bIntel\b|\bAMD\b", " ", name)
    model_name = re.sub(r"\s+", " ", plain).partition("@")[0].strip()
    known = [model for model in CHIPS if re.match(rf"{re.escape(model)}(?![\w-])", model_name)]
    # `Xeon E5-2670` must not match `Xeon E5-2670 v3`.
    known = [model for model in known if not re.match(rf"{re.escape(model)} v\d", model_name)]
    if not known:
        return f"the design power of {name or 'this processor'} is not known"
    chip = CHIPS[known[0]]
    if "hypervisor" in cpus[0].get("flags", "").split():
        share = len(cpus) / chip.threads
        extent = f"{len(cpus)} of {chip.threads} threads of a chip"
    else:
        share = len({cpu.get("physical id", "0") for cpu in cpus})
        extent = f"{share} chips" if share > 1 else "one chip"
    return Design(chip.watts * share, f"{known[0]}, {chip.watts:g} W, {extent}")


def _fields(block: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in block.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


class ModelReader(Reader):
    """Reader that computes power from CPU times and clocks."""

    name = "model"

    def probe(self) -> ProbeResult:
        if not self.host.exists(STAT):
            return ProbeResult("absent", f"there is no /{STAT}, which the model needs")
        parameters = self._parameters()
        if isinstance(parameters, str):
            return ProbeResult("absent", f"{parameters}; a model needs parameters, as `millrace calibrate` finds them")
        return ProbeResult("ok", NOTHING_MEASURED + parameters[1])

    def open(self) -> None:
        parameters = self._parameters()
        if isinstance(parameters, str):
            raise OSError(parameters)
        self._model, self._describe = parameters
        self._usage = CpuUsage(self.host)
        self._reference_hz = self._model.f_ref_ghz * NS if self._model.f_ref_ghz else self._usage.highest_hz
        calibrated = self._model.mape is not None
        flags = ("modelled",) if calibrated else ("modelled", "uncalibrated")
        self._domain = Domain("node", "platform", self.name, STAT, True, flags=flags)
        self._error = UNCALIBRATED_ERROR if self._model.mape is None else self._model.mape
        self.host.wait(SHORTEST_S)
        self._update()

    @property
    def domains(self) -> tuple[Domain, ...]:
        return (self._domain,)

    def read(self) -> list[Reading]:
        before_ns = self.host.monotonic_ns()
        try:
            if before_ns - self._since_ns >= SHORTEST_S * NS:
                self._update()
        except OSError as fault:
            return [Reading(self._domain, before_ns, 0, None, f"/{STAT} cannot be read: {fault.strerror or fault}")]
        half_ns = (self.host.monotonic_ns() - before_ns + 1) // 2
        return [Reading(self._domain, before_ns + half_ns, half_ns, self._watts, bound_watts=self._error * self._watts)]

    def _update(self) -> None:
        usage = self._usage.read()
        self._since_ns = self.host.monotonic_ns()
        self._watts = self.power(usage)

    def power(self, usage: UsageReading) -> float:
        """Return the modelled power in watts; an unknown clock is assumed to be the highest one."""
        return model_watts(self._model, usage.busy, _ratio(usage.hz, self._reference_hz))

    def close(self) -> None:
        """Do nothing: no file is kept open."""

    def _parameters(self) -> tuple[EnergyModel, str] | str:
        """Return the parameters and their origin, or the reason why there are none."""
        model = self.settings.model
        if model is not None:
            error = (
                f"uncalibrated, +-{UNCALIBRATED_ERROR:.0%}" if model.mape is None else f"calibrated, +-{model.mape:.1%}"
            )
            return model, f"P = {model.p_s:g} W + {model.p_d:g} W (f/f_ref)^{model.kappa:g} u, {error}"
        design = design_power(self.host)
        if isinstance(design, Design):
            model = EnergyModel(STATIC * design.watts, DYNAMIC * design.watts, KAPPA)
            return model, f"uncalibrated, by design power ({design.description}), +-{UNCALIBRATED_ERROR:.0%}"
        return design


def model_watts(model: EnergyModel, busy: float, ratio: float) -> float:
    """Return P in watts for a busy share and a clock relative to the reference; infinite on overflow."""
    try:
        scale: float = ratio**model.kappa
    except OverflowError:
        scale = inf
    return model.p_s + model.p_d * scale * busy


def _ratio(hz: float | None, reference_hz: float | None) -> float:
    return hz / reference_hz if hz and reference_hz else 1.0
