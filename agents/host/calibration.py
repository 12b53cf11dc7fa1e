"""`python -P -m agents.host.calibration`: measure the power of this host at several loads and clocks.

If the meter is external, its lag is measured first, with a load that is switched on and off.

The program reads a `CalibrationRequest` as a line of JSON from standard input. It writes lines of JSON, one
`CalibrationProgress` at every step, and finally a `CalibrationResult` or a `CalibrationFailure`. It exits at the end of
its input, and restores the clocks that it has set.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from agents.cpu.control import CpuControl
from agents.cpu.topology import read_policies, read_topology
from agents.host.facts import gather
from agents.power.energy import Curve
from agents.power.external import External, find_lag, pulses
from agents.power.load import Load
from agents.power.meter import History, PowerSampler, metered_energy
from agents.power.metering import Metering
from agents.power.model import CpuUsage, UsageReading, busy_seconds, highest_hz
from agents.power.reader import Domain, MeteredHost
from agents.power.series import Sample
from agents.power.settings import PowerSettings, meter_settings
from inventory.errors import MillraceError, UnfitError
from inventory.times import NS
from inventory.values import MeterLag

LOADS = (0.0, 0.25, 0.5, 0.75, 1.0)
CLOCKS = 3

POLL_S = 0.25

PULSES_PER_STEP = 20
"""Units of `agents.power.external` per step."""

SHORTEST_PULSE_S = 0.15
"""Resolution of generated loads and of CPU times."""


class CalibrationRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Duration of settling and of measuring in each step, and the owner of CPU settings."""

    settle_s: Annotated[float, Meta(ge=0)]
    step_s: Annotated[float, Meta(gt=0)]
    owner: str


class CalibrationProgress(Struct, frozen=True, tag="progress"):
    """Start of a step: its number from 0, the number of steps, and a description."""

    number: int
    of: int
    what: str


class CalibrationStep(Struct, frozen=True):
    """Result of a step.

    Attributes:
        load: requested load of every CPU.
        set_hz: requested clock; None: unchanged.
        busy: measured busy fraction of all existing CPUs.
        hz: mean clock, weighted by busy time; None if unknown.
        watts, bound_watts: mean power, and its error bound.
    """

    load: float
    set_hz: float | None
    busy: float
    hz: float | None
    watts: float
    bound_watts: float


class CalibrationResult(Struct, frozen=True, tag="found"):
    """Result of a calibration.

    Attributes:
        source: the meter.
        cpu_model: None if unknown.
        f_ref_hz: the highest clock; None if unknown.
        clocks: why clocks were not set; empty if they were.
        lag: delay of an external meter; None for other meters, and if it could not be determined.
        why_no_lag: why the lag could not be determined; empty otherwise.
        steps: in order of execution.
    """

    source: str
    cpu_model: str | None
    f_ref_hz: float | None
    clocks: str
    steps: tuple[CalibrationStep, ...]
    lag: MeterLag | None = None
    why_no_lag: str = ""


class CalibrationFailure(Struct, frozen=True, tag="refused"):
    """A calibration that is not possible here, or failed."""

    reason: str
    kind: Literal["unfit", "failed"] = "unfit"


CalibrationReply = CalibrationProgress | CalibrationResult | CalibrationFailure


class _Bench:
    """A host whose meters are open."""

    def __init__(
        self, host: MeteredHost, metering: Metering, source: str, request: CalibrationRequest, ended: Callable[[], bool]
    ) -> None:
        self._host, self._metering, self._request, self._ended = host, metering, request, ended
        self.source = source
        self._history = History()
        self._kept: list[Sample] | None = None
        self._usage = CpuUsage(host)
        self._sampler = PowerSampler(metering, self._take)
        self._sampler.start()

    def close(self) -> None:
        """Close the meters; idempotent."""
        self._sampler.stop()

    def step(self, load: float, set_hz: float | None) -> CalibrationStep:
        """Settle, and measure one step.

        Raises:
            MillraceError: the step could not be measured.
        """
        self._wait(self._request.settle_s)
        start_ns = self._begin()
        self._usage.read()
        usages = []
        left_s = self._request.step_s
        while left_s > 0:
            self._wait(min(POLL_S, left_s))
            usages.append(self._usage.read())
            left_s = self._request.step_s - (self._host.monotonic_ns() - start_ns) / NS
        end_ns = self._host.monotonic_ns()
        self._sampler.force()
        self._wait_for_words(end_ns)
        total = metered_energy(self._history, self._metering, start_ns, end_ns).total
        if total.joules is None or total.bound_joules is None:
            raise UnfitError(f"a step was not metered: {total.reason}")
        seconds = (end_ns - start_ns) / NS
        busy, hz = _mean(usages)
        return CalibrationStep(load, set_hz, busy, hz or set_hz, total.joules / seconds, total.bound_joules / seconds)

    def measure_lag(self, load: Load) -> MeterLag | str:
        """Return the lag of the meter, or the reason why it is unknown.

        Raises:
            UnfitError: the meter delivers no samples.
            OSError: the load cannot be set.
        """
        unit_ns = round(max(SHORTEST_PULSE_S, self._request.step_s / PULSES_PER_STEP) * NS)
        self._kept = []
        edge_ns = start_ns = self._begin()
        points = [(start_ns, self._busy_s())]
        for share, units in pulses():
            load.set(share)
            edge_ns += units * unit_ns
            while (left_s := (edge_ns - self._host.monotonic_ns()) / NS) > 0:
                self._wait(min(unit_ns / 4e9, left_s))
                points.append((self._host.monotonic_ns(), self._busy_s()))
        load.set(0.0)
        self._wait_for_words(edge_ns)
        kept, self._kept = self._kept, None
        by_domain: dict[Domain, list[Sample]] = {}
        for sample in kept:
            if sample.domain.in_total:
                by_domain.setdefault(sample.domain, []).append(sample)
        if any(sample.is_silent or sample.is_missing_step for samples in by_domain.values() for sample in samples):
            return "the meter was silent for a while"
        curves = [Curve((sample.t_ns, sample.known_joules) for sample in samples) for samples in by_domain.values()]
        return find_lag(Curve(points), curves, start_ns, unit_ns)

    def _begin(self) -> int:
        """Return the start of a measurement: now, or the next sample of an external meter.

        Raises:
            UnfitError: the meter delivers no samples.
        """
        self._history = History()
        self._sampler.force()
        start_ns = now_ns = self._host.monotonic_ns()
        while now_ns - start_ns < self._metering.patience_s * NS and not self._history.covers(now_ns, None):
            self._wait(POLL_S)
            now_ns = self._host.monotonic_ns()
        primary = self._metering.sources.primary
        if not self._history.domains and primary is not None and primary.trouble:
            raise UnfitError(f"{self.source} gives no reading: {primary.trouble}")
        return now_ns

    def _busy_s(self) -> float:
        return sum(busy_seconds(self._host).values())

    def _take(self, samples: Sequence[Sample]) -> None:
        self._history.add(samples)
        if self._kept is not None:
            self._kept += samples

    def _wait_for_words(self, end_ns: int) -> None:
        give_up_ns = end_ns + round(self._metering.patience_s * NS)
        while self._host.monotonic_ns() < give_up_ns and not self._history.covers(None, end_ns):
            self._wait(POLL_S)

    def _wait(self, seconds: float) -> None:
        end_ns = self._host.monotonic_ns() + round(seconds * NS)
        while (left_s := (end_ns - self._host.monotonic_ns()) / NS) > 0:
            if self._ended():
                raise InterruptedError
            self._host.wait(min(POLL_S, left_s))


def calibrate_host(
    host: MeteredHost,
    request: CalibrationRequest,
    report_progress: Callable[[CalibrationProgress], None],
    ended: Callable[[], bool],
) -> CalibrationResult:
    """Run all steps.

    Args:
        host: this host.
        request: durations and owner.
        report_progress: called at the start of every step.
        ended: returns whether to cancel.

    Raises:
        UnfitError: the host has no measured source, or does not report its CPU usage.
        InterruptedError: the calibration was cancelled.
    """
    settings = meter_settings(host)
    bench = _bench(host, _with_lag(settings, None), request, ended)
    lag: MeterLag | str = ""
    steps: list[CalibrationStep] = []
    try:
        with CpuControl(host, request.owner) as control, Load() as load:
            clocks, why_not = _clocks(host, control)
            beats = int(bench.source == External.name)
            of = beats + len(clocks) * len(LOADS)
            if beats:
                report_progress(CalibrationProgress(0, of, "a load that goes on and off"))
                lag = bench.measure_lag(load)
                if isinstance(lag, MeterLag):
                    bench.close()
                    bench = _bench(host, _with_lag(settings, lag), request, ended)
            for set_hz in clocks:
                if set_hz is not None:
                    control.set_frequency(round(set_hz))
                for share in LOADS:
                    what = f"{share:.0%} load" + (f" at {set_hz / NS:.2f} GHz" if set_hz else "")
                    report_progress(CalibrationProgress(beats + len(steps), of, what))
                    load.set(share)
                    steps.append(bench.step(share, set_hz))
    finally:
        bench.close()
    topology = read_topology(host)
    reference = highest_hz(read_policies(host, topology.online))
    cpu_model = gather()["cpu_model"]
    known, why_no_lag = (lag, "") if isinstance(lag, MeterLag) else (None, lag)
    return CalibrationResult(bench.source, cpu_model, reference, why_not, tuple(steps), known, why_no_lag)


def _bench(
    host: MeteredHost, settings: PowerSettings, request: CalibrationRequest, ended: Callable[[], bool]
) -> _Bench:
    """Open the meters.

    Raises:
        UnfitError: see `calibrate`.
    """
    metering = Metering(host, settings)
    try:
        if metering.source is None or metering.sources.primary is None:
            raise UnfitError(f"there is no measured source of energy: {metering.sources.why_none}")
        if any("modelled" in domain.flags for domain in metering.sources.primary.domains if domain.in_total):
            others = {name: f for name, f in metering.sources.findings.items() if name != metering.source}
            reasons = "; ".join(f"{name}: {each.reason}" for name, each in others.items() if each.status != "ok")
            raise UnfitError(
                f"there is no measured source of energy: {metering.source} follows a model"
                + (f"; {reasons}" if reasons else "")
            )
        return _Bench(host, metering, metering.source, request, ended)
    except (UnfitError, OSError) as fault:
        metering.close()
        raise UnfitError(str(fault)) from None


def _with_lag(settings: PowerSettings, lag: MeterLag | None) -> PowerSettings:
    external = settings.external
    return settings if external is None else replace(settings, external=replace(external, lag=lag))


def _clocks(host: MeteredHost, control: CpuControl) -> tuple[Sequence[float | None], str]:
    """Return the clocks to set, the highest first, and ""; or [None] and the reason why none can be set."""
    policies = read_policies(host, read_topology(host).online)
    if not policies:
        return [None], "the clock cannot be set here: there is no cpufreq policy"
    low = max((policy.lowest for policy in policies if policy.lowest), default=None)
    high = min((policy.highest for policy in policies if policy.highest), default=None)
    if low is None or high is None or low >= high:
        return [None], "the driver does not say which clocks there are"
    evenly = [high - (high - low) * number / (CLOCKS - 1) for number in range(CLOCKS)]
    table = policies[0].table
    chosen = [min(table, key=lambda khz: abs(khz - wanted)) for wanted in evenly] if table else evenly
    clocks = [khz * 1000.0 for khz in dict.fromkeys(chosen)]
    refused = control.set_frequency(round(clocks[0])).refused
    return ([None], "; ".join(each.reason for each in refused)) if refused else (clocks, "")


def _mean(usages: Sequence[UsageReading]) -> tuple[float, float | None]:
    """Return the weighted mean of busy fraction and clock over several intervals."""
    seconds = sum(usage.seconds for usage in usages)
    busy = sum(usage.busy * usage.seconds for usage in usages) / seconds
    known = [(usage.hz, usage.busy * usage.seconds) for usage in usages if usage.hz is not None]
    weight = sum(each for _, each in known)
    if not known:
        return busy, None
    if not weight:
        return busy, sum(hz for hz, _ in known) / len(known)
    return busy, sum(hz * each for hz, each in known) / weight


def main() -> None:
    """Handle one request."""
    encoder = msgspec.json.Encoder()

    def say(answer: CalibrationReply) -> None:
        sys.stdout.buffer.write(encoder.encode(answer) + b"\n")
        sys.stdout.buffer.flush()

    request = msgspec.json.decode(sys.stdin.buffer.readline(), type=CalibrationRequest)
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.buffer.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    try:
        say(calibrate_host(MeteredHost.here(), request, say, ended.is_set))
    except InterruptedError:
        return
    except UnfitError as fault:
        say(CalibrationFailure(str(fault)))
    except (MillraceError, OSError) as fault:
        say(CalibrationFailure(str(fault), "failed"))


if __name__ == "__main__":
    main()
