"""Clocks: the range of every policy (`scaling_min_freq`, `scaling_max_freq`), and turbo.

A fixed clock is a range with equal ends. This works with every driver, without the governor `userspace`. Files use kHz,
requests GHz, methods Hz. Turbo is `intel_pstate/no_turbo`, which is inverted, or `cpufreq/boost`.
"""

from itertools import pairwise

from agents.cpu.feature import CpuView, Feature, SettingChange, differing, settable
from agents.cpu.journal import CpuSnapshot
from agents.cpu.request import CpuRequest, Refusal
from agents.cpu.topology import FOLDER, POLICIES, Policy, no_policy
from agents.host_files import HostFiles, ProbeResult

NO_TURBO = f"{FOLDER}/intel_pstate/no_turbo"
BOOST = f"{FOLDER}/cpufreq/boost"

LOW, HIGH = "scaling_min_freq", "scaling_max_freq"

TOLERANCE_KHZ = 50_000
"""Drivers without a table round to steps of up to 100 MHz."""

UNKNOWN_KHZ = 100_000_000
"""A value above any clock."""

_LIMITS = {LOW: "lower clock limit", HIGH: "upper clock limit"}


class Turbo(Feature):
    """Clocks above the base clock."""

    def probe(self, host: HostFiles) -> ProbeResult:
        """Check whether turbo can be turned off and on."""
        return settable(host, self.paths(host), "neither intel_pstate/no_turbo nor cpufreq/boost exists")

    def paths(self, host: HostFiles) -> list[str]:
        """Return the file that this driver has, if any."""
        return [path for path in (NO_TURBO, BOOST) if host.exists(path)][:1]

    def state(self, host: HostFiles) -> bool | None:
        """Return whether turbo is allowed; None when unknown."""
        for path in self.paths(host):
            text = host.read_if_there(path)
            if text in {"0", "1"}:
                return (text == "1") == (path == BOOST)
        return None

    def refusals(self, request: CpuRequest, view: CpuView) -> list[Refusal]:
        """Refuse turbo where it cannot be set."""
        if request.turbo is None:
            return []
        probed = self.probe(view.host)
        return [] if probed.status == "ok" else [Refusal("turbo", "on" if request.turbo else "off", "", probed.reason)]

    def changes(self, request: CpuRequest, view: CpuView) -> list[SettingChange]:
        """Return the change of the file."""
        if request.turbo is None:
            return []
        return [
            SettingChange("turbo", path, view.host.read_if_there(path) or "", value, value)
            for path in self.paths(view.host)
            for value in ["1" if request.turbo == (path == BOOST) else "0"]
        ]

    def changes_back(self, before: CpuSnapshot, view: CpuView) -> list[SettingChange]:
        """Return the change back; drivers move the limits of policies with turbo, so the limits are restored later."""
        return differing("turbo", self.paths(view.host), before, view)


class ClockRange(Feature):
    """Clock range of every policy."""

    def probe(self, host: HostFiles) -> ProbeResult:
        """Check whether CPU clocks can be set."""
        policies = [name for name in host.names(POLICIES) if name.startswith("policy")]
        if not policies:
            return ProbeResult("absent", f"{no_policy(host)}: the clock cannot be set")
        folder = f"{POLICIES}/{policies[0]}"
        driver = host.read_if_there(f"{folder}/scaling_driver") or "unknown"
        wrong = host.check_number(f"{folder}/{HIGH}")
        if wrong:
            return wrong
        if not host.is_writable(f"{folder}/{HIGH}"):
            return ProbeResult("denied", f"driver {driver}: clocks can be read but not set by this user")
        return ProbeResult("ok", f"driver {driver}, {len(policies)} policies")

    def paths(self, host: HostFiles) -> list[str]:
        """Return two files per policy."""
        return [
            path
            for name in host.names(POLICIES)
            for file in (LOW, HIGH)
            if host.exists(path := f"{POLICIES}/{name}/{file}")
        ]

    def refusals(self, request: CpuRequest, view: CpuView) -> list[Refusal]:
        """Refuse clocks that the hardware does not have."""
        asked = {"min_ghz": request.min_ghz, "max_ghz": request.max_ghz}
        given = {name: ghz for name, ghz in asked.items() if ghz is not None}
        if not given:
            return []
        if not view.policies:
            return [Refusal(name, f"{ghz:g}", "", self.probe(view.host).reason) for name, ghz in given.items()]
        bounds = clock_bounds(view.policies)
        if bounds is None:
            return [
                Refusal(name, f"{ghz:g}", "", "the driver does not report its range") for name, ghz in given.items()
            ]
        if request.turbo and Turbo().state(view.host) is False:
            # The files do not show turbo clocks while turbo is off.
            bounds = {name: (low, UNKNOWN_KHZ) for name, (low, _) in bounds.items()}
        refusals = []
        for name, ghz in given.items():
            low, high = bounds[name]
            if not low - TOLERANCE_KHZ <= _khz(ghz) <= high + TOLERANCE_KHZ:
                near = low if _khz(ghz) < low else high
                reason = f"out of range; nearest: {near / 1e6:g} GHz"
                refusals.append(Refusal(name, f"{ghz:g} GHz", f"{low / 1e6:g} to {high / 1e6:g} GHz", reason))
        return refusals or _inverted_range(request, view)

    def changes(self, request: CpuRequest, view: CpuView) -> list[SettingChange]:
        """Return the changes of every online policy's range; limits that are not requested do not change."""
        if request.min_ghz is None and request.max_ghz is None:
            return []
        changes = []
        for policy in view.policies:
            low = policy.low if request.min_ghz is None else _clamped(policy, _khz(request.min_ghz))
            high = policy.high if request.max_ghz is None else _clamped(policy, _khz(request.max_ghz))
            if low is not None and high is not None:
                both = range_changes(policy, low, high)
                requested = {LOW: request.min_ghz is not None, HIGH: request.max_ghz is not None}
                changes += [change for change in both if requested[change.path.split("/")[-1]]]
        return changes

    def changes_back(self, before: CpuSnapshot, view: CpuView) -> list[SettingChange]:
        """Return the changes back to the old ranges, each in a safe order."""
        changes = []
        for policy in view.policies:
            ends = {file: before.value(policy.file(file)) for file in (LOW, HIGH)}
            now = {LOW: policy.low, HIGH: policy.high}
            order = (LOW, HIGH) if _above(policy.low, ends[HIGH]) else (HIGH, LOW)
            changes += [
                SettingChange(f"{_LIMITS[file]} of {policy.name}", policy.file(file), str(now[file]), old, old)
                for file in order
                if (old := ends[file]) is not None and now[file] is not None and str(now[file]) != old
            ]
        return changes


def clock_bounds(policies: tuple[Policy, ...]) -> dict[str, tuple[int, int]] | None:
    """Return bounds in kHz of `min_ghz` and `max_ghz` on this host; None when the driver does not report them.

    Every CPU must be able to reach the lower limit and to stay below the upper one. On a host with CPUs of different
    speeds, an upper limit above the range of the slower CPUs has no effect on them.
    """
    ranges = [(p.lowest, p.highest) for p in policies if p.lowest is not None and p.highest is not None]
    if not ranges:
        return None
    lows, highs = zip(*ranges, strict=True)
    return {"min_ghz": (min(lows), min(highs)), "max_ghz": (max(lows), max(highs))}


def range_changes(policy: Policy, low: int, high: int) -> list[SettingChange]:
    """Return changes of both limits, in kHz, in an order in which the lower is never above the upper.

    The written value is within the hardware's range and in its table. The requested value stays in the change, so that
    an impossible clock is reported as not in effect.
    """
    ends = [_end(policy, LOW, policy.low, low), _end(policy, HIGH, policy.high, high)]
    lower_first = policy.low is not None and int(ends[1].write) < policy.low
    return ends if lower_first else ends[::-1]


def choices_hz(policies: tuple[Policy, ...]) -> list[int]:
    """Return the clocks that all policies can be fixed at: their table, or both ends of their range; may be empty."""
    tables = [set(policy.table) for policy in policies]
    if tables and all(tables):
        return sorted(khz * 1000 for khz in set.intersection(*tables))
    ranges = [(p.lowest, p.highest) for p in policies if p.lowest is not None and p.highest is not None]
    if not ranges or len(ranges) < len(policies):
        return []
    low, high = max(low for low, _ in ranges), min(high for _, high in ranges)
    return sorted({low * 1000, high * 1000}) if low <= high else []


def _end(policy: Policy, file: str, now: int | None, asked: int) -> SettingChange:
    write = _clamped(policy, asked)
    if policy.table:
        write = min(policy.table, key=lambda khz: (abs(khz - write), khz))
    before = "" if now is None else str(now)
    grain = 0 if policy.table else TOLERANCE_KHZ
    what = f"{_LIMITS[file]} of {policy.name}"
    return SettingChange(what, policy.file(file), before, str(asked), str(write), _within(policy, asked), grain)


def _within(policy: Policy, asked: int) -> int:
    """Return the tolerance of the requested clock: 50 MHz, or the gap between the table entries around it."""
    gaps = [upper - lower for lower, upper in pairwise(policy.table) if lower < asked < upper]
    return max([TOLERANCE_KHZ, *gaps])


def _clamped(policy: Policy, khz: int) -> int:
    if policy.lowest is not None:
        khz = max(khz, policy.lowest)
    return khz if policy.highest is None else min(khz, policy.highest)


def _inverted_range(request: CpuRequest, view: CpuView) -> list[Refusal]:
    """Refuse a lower limit above the upper one, which may be the current one."""
    for policy in view.policies:
        low = policy.low if request.min_ghz is None else _khz(request.min_ghz)
        high = policy.high if request.max_ghz is None else _khz(request.max_ghz)
        if low is None or high is None or low <= high:
            continue
        if request.max_ghz is None or request.min_ghz is not None:
            reason = f"{policy.name} goes up to {high / 1e6:g} GHz; max_ghz must be raised as well"
            return [Refusal("min_ghz", f"{low / 1e6:g} GHz", f"up to {high / 1e6:g} GHz", reason)]
        reason = f"{policy.name} goes down to {low / 1e6:g} GHz; min_ghz must be lowered as well"
        return [Refusal("max_ghz", f"{high / 1e6:g} GHz", f"from {low / 1e6:g} GHz", reason)]
    return []


def _above(one: int | None, other: int | str | None) -> bool:
    return one is not None and other is not None and one > int(other)


def _khz(ghz: float) -> int:
    return round(ghz * 1e6)
