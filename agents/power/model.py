"""Modelled power: P = p_s + p_d (f / f_ref)^kappa u.

`u` is the busy share of all present CPUs, `f` their clock weighted by busy time, `f_ref` the highest clock. The
parameters come from a calibration (`millrace calibrate`), or from the inventory. Without either, they are derived from
the design power: 30 % static, 70 % dynamic, kappa 3, with an error of 50 %.
"""

from math import inf

from agents.host_files import Finding
from agents.power.domain import Domain, Reader, Reading
from agents.power.tdp import Design, design_power
from agents.power.usage import STAT, CpuUsage, Usage
from inventory.energy_model import EnergyModel

STATIC, DYNAMIC, KAPPA = 0.3, 0.7, 3.0
UNCALIBRATED_ERROR = 0.5

NOTHING_MEASURED = "nothing is measured: "
"""Prefix of the reader's finding; its parameters follow."""

SHORTEST_S = 0.09
"""CPU times have a resolution of 10 ms: over a shorter time than this, the last power is returned again."""


class ModelReader(Reader):
    """Reader that computes power from CPU times and clocks."""

    name = "model"

    def probe(self) -> Finding:
        if not self.host.exists(STAT):
            return Finding("absent", f"there is no /{STAT}, which the model needs")
        found = self._parameters()
        if isinstance(found, str):
            return Finding("absent", f"{found}; a model needs parameters, as `millrace calibrate` finds them")
        return Finding("ok", NOTHING_MEASURED + found[1])

    def open(self) -> None:
        found = self._parameters()
        if isinstance(found, str):
            raise OSError(found)
        self._model, self._describe = found
        self._usage = CpuUsage(self.host)
        self._reference_hz = self._model.f_ref_ghz * 1e9 if self._model.f_ref_ghz else self._usage.highest_hz
        calibrated = self._model.mape is not None
        flags = ("modelled",) if calibrated else ("modelled", "uncalibrated")
        self._domain = Domain("node", "platform", self.name, STAT, True, flags=flags)
        self._error = UNCALIBRATED_ERROR if self._model.mape is None else self._model.mape
        self.host.wait(SHORTEST_S)
        self._look()

    @property
    def domains(self) -> tuple[Domain, ...]:
        return (self._domain,)

    def read(self) -> list[Reading]:
        before_ns = self.host.monotonic_ns()
        try:
            if before_ns - self._since_ns >= SHORTEST_S * 1e9:
                self._look()
        except OSError as fault:
            return [Reading(self._domain, before_ns, 0, None, f"/{STAT} cannot be read: {fault.strerror or fault}")]
        half_ns = (self.host.monotonic_ns() - before_ns + 1) // 2
        return [Reading(self._domain, before_ns + half_ns, half_ns, self._watts, bound_watts=self._error * self._watts)]

    def _look(self) -> None:
        usage = self._usage.look()
        self._since_ns = self.host.monotonic_ns()
        self._watts = self.power(usage)

    def power(self, usage: Usage) -> float:
        """Return the modelled power in watts; an unknown clock is assumed to be the highest one."""
        return power(self._model, usage.busy, _ratio(usage.hz, self._reference_hz))

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
        found = design_power(self.host)
        if isinstance(found, Design):
            model = EnergyModel(STATIC * found.watts, DYNAMIC * found.watts, KAPPA)
            return model, f"uncalibrated, by design power ({found.words}), +-{UNCALIBRATED_ERROR:.0%}"
        return found


def power(model: EnergyModel, busy: float, ratio: float) -> float:
    """Return P in watts for a busy share and a clock relative to the reference; infinite on overflow."""
    try:
        scale: float = ratio**model.kappa
    except OverflowError:
        scale = inf
    return model.p_s + model.p_d * scale * busy


def _ratio(hz: float | None, reference_hz: float | None) -> float:
    return hz / reference_hz if hz and reference_hz else 1.0
