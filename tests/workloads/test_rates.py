"""Rates from documents, and schedules of constant rates and steps."""

import math
import re
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import get_args

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from inventory.errors import InputError
from inventory.times import NS
from workloads.rates import Constant, Max, Rate, Steps, rate_of

RATE = st.floats(1e-3, 1e7) | st.integers(1, 10**6).map(float)
DURATION = st.floats(1e-3, 1e4) | st.integers(1, 3600).map(float)


@st.composite
def steps(draw):
    pieces = draw(st.lists(st.tuples(DURATION, RATE | st.just(0.0)), max_size=6))
    start, found = 0.0, []
    for duration, rate in pieces:
        found.append((start, rate))
        start += duration
    return (*found, (start, draw(RATE)))


def exact_count(schedule_steps, elapsed_ns):
    """Return the number of records due at a time, in exact arithmetic."""
    reached = Fraction(0)
    due = 0
    for at, (start, rate) in enumerate(schedule_steps):
        begin = round(start * NS)
        later = [round(s * NS) for s, _ in schedule_steps[at + 1 : at + 2]]
        if elapsed_ns < begin:
            break
        in_step = bool(not later or elapsed_ns < later[0])
        end = elapsed_ns if in_step else later[0]
        reached += Fraction(rate) / NS * (end - begin)
        # A record exactly at the end of a step belongs to the next step; within a step it is due.
        due = reached.__floor__() + 1 if in_step and rate else reached.__ceil__()
    return due


@given(steps(), st.integers(0, 10**15))
def test_due_count_inverts_due_ns(given_steps, record):
    schedule = Steps(given_steps).schedule()
    due = schedule.due_ns(record)
    assert schedule.due_count(due) >= record + 1
    assert schedule.due_count(due - 1) <= record


@given(steps(), st.integers(0, 10**14))
def test_due_count_is_the_exact_count(given_steps, elapsed_ns):
    schedule = Steps(given_steps).schedule()
    count = schedule.due_count(elapsed_ns)
    assert count == exact_count(given_steps, elapsed_ns)
    assert schedule.due_ns(count) > elapsed_ns
    assert count == 0 or schedule.due_ns(count - 1) <= elapsed_ns


@given(steps(), st.integers(0, 10**12), st.lists(st.integers(0, 1000), max_size=20))
def test_due_times_never_fall(given_steps, first, distances):
    schedule = Steps(given_steps).schedule()
    records = [first]
    for distance in distances:
        records.append(records[-1] + distance)
    assert all(a <= b for a, b in pairwise([schedule.due_ns(record) for record in records]))


def test_a_constant_rate_is_evenly_spaced_from_source_start():
    schedule = Constant(1000.0).schedule()
    assert [schedule.due_ns(record) for record in (0, 1, 2, 1000)] == [0, 1_000_000, 2_000_000, NS]
    assert [schedule.due_count(at) for at in (-1, 0, 999_999, 1_000_000)] == [0, 1, 1, 2]


def test_huge_record_numbers_do_not_drift():
    schedule = Constant(3.0).schedule()
    assert schedule.due_ns(3 * 10**15) == 10**15 * NS
    assert schedule.due_ns(3 * 10**15 + 1) == 10**15 * NS + 333_333_334
    assert schedule.due_count(10**15 * NS) == 3 * 10**15 + 1


def test_each_step_holds_rate_times_duration():
    schedule = Steps(((0.0, 100.0), (10.0, 200.0), (20.0, 50.0))).schedule()
    ends = [0, 10 * NS, 20 * NS, 30 * NS]
    # -1: a record that is due exactly at the start of a step belongs to that step.
    totals = [schedule.due_count(end - 1) for end in ends]
    assert [b - a for a, b in pairwise(totals)] == [1000, 2000, 500]
    assert schedule.due_ns(1000) == 10 * NS
    assert schedule.due_ns(1001) == 10 * NS + NS // 200


def test_nothing_is_due_in_a_pause():
    schedule = Steps(((0.0, 10.0), (1.0, 0.0), (2.0, 0.0), (5.0, 10.0))).schedule()
    assert [schedule.due_count(at) for at in (NS - 1, NS, 3 * NS, 5 * NS - 1, 5 * NS)] == [10, 10, 10, 10, 11]
    assert [schedule.due_ns(record) for record in (9, 10, 11)] == [900_000_000, 5 * NS, 5 * NS + NS // 10]


def test_a_schedule_may_start_with_a_pause():
    schedule = Steps(((0.0, 0.0), (2.0, 1.0))).schedule()
    assert schedule.due_ns(0) == 2 * NS
    assert schedule.due_count(2 * NS - 1) == 0


def test_rates_from_plain_data():
    assert rate_of({"kind": "constant", "tuples_per_s": 5}) == Constant(5.0)
    assert rate_of({"kind": "steps", "steps": [[0, 1], [2.5, 0], [3, 7]]}) == Steps(
        ((0.0, 1.0), (2.5, 0.0), (3.0, 7.0))
    )
    assert rate_of({"kind": "max"}) == Max()
    assert rate_of({"kind": "max"}).schedule() is None


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ({"kind": "konstant", "tuples_per_s": 5}, "kind: .*konstant.*did you mean 'constant'"),
        ({"tuples_per_s": 5}, "the key 'kind' is missing"),
        ({"kind": "constant"}, "the key 'tuples_per_s' is missing"),
        ({"kind": "constant", "tuple_per_s": 5}, "unknown key 'tuple_per_s'; did you mean 'tuples_per_s'"),
        ({"kind": "constant", "tuples_per_s": 0}, "tuples_per_s: got 0: expected .*> 0"),
        ({"kind": "constant", "tuples_per_s": "5"}, 'tuples_per_s: got "5": expected a number, got text'),
        ({"kind": "steps", "steps": []}, "steps: got"),
        ({"kind": "steps", "steps": [[1, 5]]}, "the first step starts at 1.0 s, it must start at 0"),
        ({"kind": "steps", "steps": [[0, 5], [2, 6], [2, 7]]}, "start times must rise"),
        ({"kind": "steps", "steps": [[0, 5], [2, 0]]}, "would never emit again"),
        ({"kind": "max", "tuples_per_s": 5}, "unknown key 'tuples_per_s'"),
        ([], "expected a mapping, got a list"),
    ],
)
def test_a_wrong_rate_is_explained(plain, said):
    with pytest.raises(InputError, match=said):
        rate_of(plain)


@pytest.mark.parametrize(
    ("rate", "peak"),
    [
        ({"kind": "constant", "tuples_per_s": 5.0}, 5.0),
        ({"kind": "steps", "steps": [[0, 1], [2, 9], [4, 3]]}, 9.0),
        ({"kind": "poisson", "tuples_per_s": 7.0}, 7.0),
        ({"kind": "bursts", "on_s": 1, "off_s": 1, "tuples_per_s": 2, "off_tuples_per_s": 6}, 6.0),
        ({"kind": "sine", "mean_tuples_per_s": 10, "amplitude": 0.5, "period_s": 3}, 15.0),
        ({"kind": "replay"}, None),
        ({"kind": "max"}, None),
    ],
)
def test_the_peak_rate_is_known_for_rates_with_a_schedule(rate: dict, peak: float | None) -> None:
    assert rate_of(rate).peak_per_s == peak


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 0, -1, 1.1e9, 1e300, "fast", None])
def test_an_impossible_rate_is_an_input_error(value: object) -> None:
    with pytest.raises(InputError, match="tuples_per_s"):
        rate_of({"kind": "constant", "tuples_per_s": value})
    with pytest.raises(InputError, match="steps"):
        rate_of({"kind": "steps", "steps": [[0, value if value != 0 else -1]]})


@pytest.mark.parametrize("start", [math.inf, math.nan, 1e10, -1])
def test_a_step_with_an_impossible_start_is_an_input_error(start: float) -> None:
    with pytest.raises(InputError, match="steps"):
        rate_of({"kind": "steps", "steps": [[0, 5], [start, 7]]})


def test_the_highest_rate_has_a_schedule() -> None:
    schedule = rate_of({"kind": "constant", "tuples_per_s": 1e9}).schedule()
    assert schedule is not None
    assert [schedule.due_ns(record) for record in (0, 1, 10**12)] == [0, 1, 10**12]
    assert schedule.due_count(5) == 6


PAGE = (Path(__file__).parents[2] / "docs/reference/rates.md").read_text()


@pytest.mark.parametrize("kind", get_args(Rate), ids=lambda kind: kind.__struct_config__.tag)
def test_every_kind_is_documented_with_its_keys(kind: type) -> None:
    row = re.search(rf"^\| `{kind.__struct_config__.tag}` \| (.*?) \|", PAGE, re.MULTILINE)
    assert row
    assert re.findall(r"`(\w+)", row[1]) == [field.name for field in msgspec.structs.fields(kind)]
    defaults = {
        f.name: f"{f.default:g}" for f in msgspec.structs.fields(kind) if f.default not in (msgspec.NODEFAULT, None)
    }
    assert dict(re.findall(r"`(\w+)` \((\S+)\)", row[1])) == defaults


def test_the_examples_are_valid_rates() -> None:
    examples = re.findall(r"^rate: .*$", PAGE, re.MULTILINE)
    assert len(examples) == 4
    for example in examples:
        rate_of(yaml.safe_load(example)["rate"])
