"""Sentences and numbers of the page."""

from collections.abc import Iterator

import pytest

from analysis.page.html import executor_ranges, number, ranges, signed, size, span
from analysis.records.descriptions import FIDELITY, fidelity_of
from analysis.statistics.intervals import ConfidenceInterval


@pytest.mark.parametrize(
    ("tier", "sentence"),
    [
        (1, "the loopback device only"),
        (2, "the calibration below says what was asked and got"),
        (3, "The nodes are virtual machines"),
        (None, "The nodes are real hosts"),
        ("lab", "The nodes are real hosts"),
    ],
)
def test_every_tier_has_its_own_description(tier: object, sentence: str) -> None:
    fidelity = fidelity_of(tier)
    assert sentence in " ".join([fidelity.cluster, *fidelity.real, *fidelity.emulated, *fidelity.absent])


def test_every_tier_lists_what_is_emulated_and_absent() -> None:
    for fidelity in FIDELITY.values():
        assert fidelity.emulated
        assert fidelity.absent


def cases() -> Iterator[tuple[str, str]]:
    thin, dash, minus = "\u202f", "–", "−"
    yield number(None), dash
    yield number(1234567.891, 1), f"1{thin}234{thin}567.9"
    yield span([3.0, 1.0, 2.0], 1), f"1.0{thin}{dash}{thin}3.0"
    yield span([1.001, 1.002], 1), "1.0"
    yield span([]), dash
    yield signed(ConfidenceInterval(12, -3.2, -4.0, 0.04), 1), f"{minus}3.2 [{minus}4.0, 0.0]"
    yield signed(None), dash
    yield size(999), "999 bytes"
    yield size(2_500_000), "2.5 MB"
    yield ranges([0, 1, 2, 5, 7, 8]), f"0{dash}2, 5, 7{dash}8"


@pytest.mark.parametrize(("got", "expected"), list(cases()))
def test_numbers_on_the_page(got: str, expected: str) -> None:
    assert got == expected


def test_executors_of_a_worker_in_short() -> None:
    names = ["split[0]", "split[2]", "split[1]", "a[b][7]"]
    assert executor_ranges(names) == {"split": "0–2", "a[b]": "7"}
