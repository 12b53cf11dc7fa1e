"""The clock range of every policy (`scaling_min_freq`, `scaling_max_freq`); a fixed clock is a range of one.

This works with every driver and needs no governor `userspace`. Files are in kHz, wishes in GHz, verbs in Hz.
"""

from itertools import pairwise

from agents.cpu import turbo
from agents.cpu.answer import Refusal
from agents.cpu.policies import POLICIES, Policy, no_policy
from agents.cpu.snapshot import Snapshot
from agents.cpu.step import Step, View
from agents.cpu.wish import CpuRequest
from agents.host_files import Finding, HostFiles

LOW, HIGH = "scaling_min_freq", "scaling_max_freq"
TOLERANCE_KHZ = 50_000
"""Drivers without a table round to steps of up to 100 MHz."""


UNKNOWN_KHZ = 100_000_000
"""Above any clock."""


def probe(host: HostFiles) -> Finding:
    """CPU clock and governor."""
    policies = [name for name in host.names(POLICIES) if name.startswith("policy")]
    if not policies:
        return Finding("absent", f"{no_policy(host)}: the clock cannot be set")
    folder = f"{POLICIES}/{policies[0]}"
    driver = host.read_if_there(f"{folder}/scaling_driver") or "unknown"
    wrong = host.check_number(f"{folder}/{HIGH}")
    if wrong:
        return wrong
    if not host.is_writable(f"{folder}/{HIGH}"):
        return Finding("denied", f"driver {driver}: clocks can be read but not set by this user")
    return Finding("ok", f"driver {driver}, {len(policies)} policies")


def paths(host: HostFiles) -> list[str]:
    """Two files per policy."""
    return [
        path
        for name in host.names(POLICIES)
        for file in (LOW, HIGH)
        if host.exists(path := f"{POLICIES}/{name}/{file}")
    ]


def refusals(wish: CpuRequest, view: View) -> list[Refusal]:
    """Clocks that the hardware does not have."""
    asked = {"min_ghz": wish.min_ghz, "max_ghz": wish.max_ghz}
    given = {name: ghz for name, ghz in asked.items() if ghz is not None}
    if not given:
        return []
    if not view.policies:
        return [Refusal(name, f"{ghz:g}", "", probe(view.host).reason) for name, ghz in given.items()]
    bounds = reach(view.policies)
    if bounds is None:
        return [Refusal(name, f"{ghz:g}", "", "the driver does not say its range") for name, ghz in given.items()]
    if wish.turbo and turbo.state(view.host) is False:
        # What turbo adds is not in the files as long as it is off.
        bounds = {name: (low, UNKNOWN_KHZ) for name, (low, _) in bounds.items()}
    found = []
    for name, ghz in given.items():
        low, high = bounds[name]
        if not low - TOLERANCE_KHZ <= _khz(ghz) <= high + TOLERANCE_KHZ:
            near = low if _khz(ghz) < low else high
            reason = f"out of range; nearest: {near / 1e6:g} GHz"
            found.append(Refusal(name, f"{ghz:g} GHz", f"{low / 1e6:g} to {high / 1e6:g} GHz", reason))
    return found or _crossing(wish, view)


def reach(policies: tuple[Policy, ...]) -> dict[str, tuple[int, int]] | None:
    """Least and most, in kHz, that `min_ghz` and `max_ghz` can be on this host; None when the driver does not say.

    Every CPU must reach the lower limit and keep the upper one; a limit beyond the slower CPUs of a mixed host is none
    for them.
    """
    ranges = [(p.lowest, p.highest) for p in policies if p.lowest is not None and p.highest is not None]
    if not ranges:
        return None
    lows, highs = zip(*ranges, strict=True)
    return {"min_ghz": (min(lows), min(highs)), "max_ghz": (max(lows), max(highs))}


def steps(wish: CpuRequest, view: View) -> list[Step]:
    """The range of every policy that works; what is not wished for stays."""
    if wish.min_ghz is None and wish.max_ghz is None:
        return []
    found = []
    for policy in view.policies:
        low = policy.low if wish.min_ghz is None else _clamped(policy, _khz(wish.min_ghz))
        high = policy.high if wish.max_ghz is None else _clamped(policy, _khz(wish.max_ghz))
        if low is not None and high is not None:
            both = range_steps(policy, low, high)
            wished = {LOW: wish.min_ghz is not None, HIGH: wish.max_ghz is not None}
            found += [step for step in both if wished[step.path.split("/")[-1]]]
    return found


def range_steps(policy: Policy, low: int, high: int) -> list[Step]:
    """Set both ends, in kHz, in the order in which the lower is never above the upper.

    What is written is within the hardware's range and in its table; what was asked stays in the step, so that a
    clock that cannot be is reported as not taken.
    """
    ends = [_end(policy, LOW, policy.low, low), _end(policy, HIGH, policy.high, high)]
    lower_first = policy.low is not None and int(ends[1].write) < policy.low
    return ends if lower_first else ends[::-1]


def steps_back(before: Snapshot, view: View) -> list[Step]:
    """The ranges that were, each in its safe order."""
    found = []
    for policy in view.policies:
        ends = {file: before.value(policy.file(file)) for file in (LOW, HIGH)}
        now = {LOW: policy.low, HIGH: policy.high}
        order = (LOW, HIGH) if _above(policy.low, ends[HIGH]) else (HIGH, LOW)
        found += [
            Step(f"{_WORDS[file]} of {policy.name}", policy.file(file), str(now[file]), old, old)
            for file in order
            if (old := ends[file]) is not None and now[file] is not None and str(now[file]) != old
        ]
    return found


def choices_hz(policies: tuple[Policy, ...]) -> list[int]:
    """The clocks that all policies can be fixed at: their table, or both ends of their range; none when not known."""
    tables = [set(policy.table) for policy in policies]
    if tables and all(tables):
        return sorted(khz * 1000 for khz in set.intersection(*tables))
    ranges = [(p.lowest, p.highest) for p in policies if p.lowest is not None and p.highest is not None]
    if not ranges or len(ranges) < len(policies):
        return []
    low, high = max(low for low, _ in ranges), min(high for _, high in ranges)
    return sorted({low * 1000, high * 1000}) if low <= high else []


_WORDS = {LOW: "lower clock limit", HIGH: "upper clock limit"}


def _end(policy: Policy, file: str, now: int | None, asked: int) -> Step:
    write = _clamped(policy, asked)
    if policy.table:
        write = min(policy.table, key=lambda khz: (abs(khz - write), khz))
    before = "" if now is None else str(now)
    grain = 0 if policy.table else TOLERANCE_KHZ
    what = f"{_WORDS[file]} of {policy.name}"
    return Step(what, policy.file(file), before, str(asked), str(write), _within(policy, asked), grain)


def _within(policy: Policy, asked: int) -> int:
    """How far the clock may be from what was asked: 50 MHz, or the step of the table that it lies in the midst of."""
    gaps = [upper - lower for lower, upper in pairwise(policy.table) if lower < asked < upper]
    return max([TOLERANCE_KHZ, *gaps])


def _clamped(policy: Policy, khz: int) -> int:
    if policy.lowest is not None:
        khz = max(khz, policy.lowest)
    return khz if policy.highest is None else min(khz, policy.highest)


def _crossing(wish: CpuRequest, view: View) -> list[Refusal]:
    """A lower limit above the upper one, which may be the one in force."""
    for policy in view.policies:
        low = policy.low if wish.min_ghz is None else _khz(wish.min_ghz)
        high = policy.high if wish.max_ghz is None else _khz(wish.max_ghz)
        if low is None or high is None or low <= high:
            continue
        if wish.max_ghz is None or wish.min_ghz is not None:
            reason = f"{policy.name} goes up to {high / 1e6:g} GHz; max_ghz must be raised as well"
            return [Refusal("min_ghz", f"{low / 1e6:g} GHz", f"up to {high / 1e6:g} GHz", reason)]
        reason = f"{policy.name} goes down to {low / 1e6:g} GHz; min_ghz must be lowered as well"
        return [Refusal("max_ghz", f"{high / 1e6:g} GHz", f"from {low / 1e6:g} GHz", reason)]
    return []


def _above(one: int | None, other: int | str | None) -> bool:
    return one is not None and other is not None and one > int(other)


def _khz(ghz: float) -> int:
    return round(ghz * 1e6)
