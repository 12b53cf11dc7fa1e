"""The order of a campaign's runs: complete, stable, and interleaved on request."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from campaign.agenda.run_order import Order, runs_of

names = st.lists(st.text("abcdefgh", min_size=1, max_size=3), min_size=1, max_size=4, unique=True)
rounds = st.integers(1, 6)
seeds = st.integers(0, 2**32)


@given(names, names, rounds, st.sampled_from(["interleaved", "sequential"]), seeds)
def test_every_combination_comes_exactly_once_and_in_number_order(
    workloads: list[str], schedulers: list[str], repetitions: int, order: Order, seed: int
) -> None:
    runs = runs_of(workloads, schedulers, repetitions, order, seed)
    expected = Counter((w, s, k) for w in workloads for s in schedulers for k in range(1, repetitions + 1))
    assert Counter((r.workload, r.scheduler, r.repetition) for r in runs) == expected
    assert [r.number for r in runs] == list(range(1, len(runs) + 1))
    assert [r.name for r in runs] == sorted(r.name for r in runs)
    assert len({r.name for r in runs}) == len(runs)


@given(names, names, names, rounds, st.sampled_from(["interleaved", "sequential"]), seeds)
def test_cpu_settings_are_a_third_factor_that_leaves_seeds_alone(
    workloads: list[str], schedulers: list[str], cpus: list[str], repetitions: int, order: Order, seed: int
) -> None:
    runs = runs_of(workloads, schedulers, repetitions, order, seed, cpus)
    expected = {(w, s, c, k) for w in workloads for s in schedulers for c in cpus for k in range(1, repetitions + 1)}
    assert Counter((r.workload, r.scheduler, r.cpu, r.repetition) for r in runs) == Counter(expected)
    assert len({r.name for r in runs}) == len(runs)
    alone = runs_of(workloads, schedulers, repetitions, order, seed)
    assert {(r.workload, r.repetition, r.seed) for r in runs} == {(r.workload, r.repetition, r.seed) for r in alone}


@given(names, names, rounds, seeds)
def test_interleaving_finishes_a_repetition_before_the_next_begins(
    workloads: list[str], schedulers: list[str], repetitions: int, seed: int
) -> None:
    runs = runs_of(workloads, schedulers, repetitions, "interleaved", seed)
    assert [r.repetition for r in runs] == sorted(r.repetition for r in runs)


@given(names, names, rounds, seeds)
def test_sequential_runs_do_not_depend_on_the_seed(w: list[str], s: list[str], repetitions: int, seed: int) -> None:
    runs, others = (runs_of(w, s, repetitions, "sequential", number) for number in (seed, 0))
    assert [r.name for r in runs] == [r.name for r in others]


@given(names, names, rounds, seeds)
def test_schedulers_meet_the_same_seed_within_a_repetition(
    workloads: list[str], schedulers: list[str], repetitions: int, seed: int
) -> None:
    by_case: dict[tuple[str, int], set[int]] = {}
    for run in runs_of(workloads, schedulers, repetitions, "interleaved", seed):
        by_case.setdefault((run.workload, run.repetition), set()).add(run.seed)
    assert all(len(found) == 1 for found in by_case.values())
    assert all(0 <= value < 2**32 for found in by_case.values() for value in found)


def test_the_order_is_the_same_on_every_machine_and_every_version() -> None:
    runs = runs_of(["wordcount", "exclamation"], ["even", "top-storm"], 2, "interleaved", 7)
    assert [r.name for r in runs] == [
        "001-wordcount-top-storm-r1",
        "002-exclamation-top-storm-r1",
        "003-wordcount-even-r1",
        "004-exclamation-even-r1",
        "005-wordcount-top-storm-r2",
        "006-exclamation-top-storm-r2",
        "007-wordcount-even-r2",
        "008-exclamation-even-r2",
    ]
    assert runs[0].seed == 2765834462


def test_different_seeds_and_different_repetitions_shuffle_differently() -> None:
    labels = [f"w{k}" for k in range(6)]

    def orders(seed: int) -> list[tuple[str, ...]]:
        runs = runs_of(labels, ["even"], 8, "interleaved", seed)
        return [tuple(r.workload for r in runs if r.repetition == k) for k in range(1, 9)]

    assert len(set(orders(1))) > 1
    assert orders(1) != orders(2)


def test_run_names_hold_number_label_scheduler_and_repetition() -> None:
    runs = runs_of(["stepped"], ["top-storm"], 1200, "sequential", 0)
    assert runs[0].name == "0001-stepped-top-storm-r1"
    assert runs[-1].name == "1200-stepped-top-storm-r1200"
