"""The order of a campaign's runs: complete, stable, and interleaved on request."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from campaign.agenda.run_order import Order, continued, ordered_runs

names = st.lists(st.text("abcdefgh", min_size=1, max_size=3), min_size=1, max_size=4, unique=True)
rounds = st.integers(1, 6)
seeds = st.integers(0, 2**32)


@given(names, names, rounds, st.sampled_from(["interleaved", "sequential"]), seeds)
def test_every_combination_comes_exactly_once_and_in_number_order(
    workloads: list[str], schedulers: list[str], repetitions: int, order: Order, seed: int
) -> None:
    runs = ordered_runs(workloads, schedulers, repetitions, order, seed)
    expected = Counter((w, s, k) for w in workloads for s in schedulers for k in range(1, repetitions + 1))
    assert Counter((r.workload, r.scheduler, r.repetition) for r in runs) == expected
    assert [r.number for r in runs] == list(range(1, len(runs) + 1))
    assert [r.name for r in runs] == sorted(r.name for r in runs)
    assert len({r.name for r in runs}) == len(runs)


@given(names, names, names, rounds, st.sampled_from(["interleaved", "sequential"]), seeds)
def test_cpu_settings_are_a_third_factor_that_does_not_change_seeds(
    workloads: list[str], schedulers: list[str], cpus: list[str], repetitions: int, order: Order, seed: int
) -> None:
    runs = ordered_runs(workloads, schedulers, repetitions, order, seed, cpus)
    expected = {(w, s, c, k) for w in workloads for s in schedulers for c in cpus for k in range(1, repetitions + 1)}
    assert Counter((r.workload, r.scheduler, r.cpu, r.repetition) for r in runs) == Counter(expected)
    assert len({r.name for r in runs}) == len(runs)
    alone = ordered_runs(workloads, schedulers, repetitions, order, seed)
    assert {(r.workload, r.repetition, r.seed) for r in runs} == {(r.workload, r.repetition, r.seed) for r in alone}


@given(names, names, rounds, seeds)
def test_interleaving_finishes_a_repetition_before_the_next_begins(
    workloads: list[str], schedulers: list[str], repetitions: int, seed: int
) -> None:
    runs = ordered_runs(workloads, schedulers, repetitions, "interleaved", seed)
    assert [r.repetition for r in runs] == sorted(r.repetition for r in runs)


@given(names, names, rounds, seeds)
def test_sequential_runs_do_not_depend_on_the_seed(w: list[str], s: list[str], repetitions: int, seed: int) -> None:
    runs, others = (ordered_runs(w, s, repetitions, "sequential", number) for number in (seed, 0))
    assert [r.name for r in runs] == [r.name for r in others]


@given(names, names, rounds, seeds)
def test_schedulers_get_the_same_seed_within_a_repetition(
    workloads: list[str], schedulers: list[str], repetitions: int, seed: int
) -> None:
    by_case: dict[tuple[str, int], set[int]] = {}
    for run in ordered_runs(workloads, schedulers, repetitions, "interleaved", seed):
        by_case.setdefault((run.workload, run.repetition), set()).add(run.seed)
    assert all(len(found) == 1 for found in by_case.values())
    assert all(0 <= value < 2**32 for found in by_case.values() for value in found)


def test_the_order_is_the_same_on_every_machine_and_every_version() -> None:
    runs = ordered_runs(["wordcount", "exclamation"], ["even", "top-storm"], 2, "interleaved", 7)
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
        runs = ordered_runs(labels, ["even"], 8, "interleaved", seed)
        return [tuple(r.workload for r in runs if r.repetition == k) for k in range(1, 9)]

    assert len(set(orders(1))) > 1
    assert orders(1) != orders(2)


def test_run_names_hold_number_label_scheduler_and_repetition() -> None:
    runs = ordered_runs(["stepped"], ["top-storm"], 1200, "sequential", 0)
    assert runs[0].name == "0001-stepped-top-storm-r1"
    assert runs[-1].name == "1200-stepped-top-storm-r1200"


@given(names, names, names, rounds, rounds, st.sampled_from(["interleaved", "sequential"]), seeds)
def test_added_repetitions_come_behind_the_runs_that_exist_and_are_those_of_a_longer_campaign(
    workloads: list[str], schedulers: list[str], cpus: list[str], before: int, added: int, order: Order, seed: int
) -> None:
    runs = ordered_runs(workloads, schedulers, before, order, seed, cpus)
    longer = ordered_runs(workloads, schedulers, before + added, order, seed, cpus)
    found = continued(longer, [r.name for r in runs])
    assert found[: len(runs)] == runs
    assert [r.number for r in found] == list(range(1, len(longer) + 1))
    assert {r.repetition for r in found[len(runs) :]} == set(range(before + 1, before + added + 1))
    assert [r[1:4] + r[5:] for r in found[len(runs) :]] == [r[1:4] + r[5:] for r in longer if r.repetition > before]
    assert all(int(r.name.partition("-")[0]) == r.number for r in found)
    # Extended again, nothing moves.
    assert continued(longer, [r.name for r in found]) == found
    if order == "interleaved":
        assert found == longer


def test_labels_that_make_names_equal_but_for_the_number_are_kept_apart() -> None:
    workloads, schedulers = ["a", "a-b"], ["b-c", "c"]
    runs = ordered_runs(workloads, schedulers, 1, "sequential", 0)
    assert [r.name for r in runs] == ["001-a-b-c-r1", "002-a-c-r1", "003-a-b-b-c-r1", "004-a-b-c-r1"]
    found = continued(ordered_runs(workloads, schedulers, 2, "sequential", 0), [r.name for r in runs])
    assert found[:4] == runs
    assert [(r.name, r.workload) for r in found[4:]] == [
        ("005-a-b-c-r2", "a"),
        ("006-a-c-r2", "a"),
        ("007-a-b-b-c-r2", "a-b"),
        ("008-a-b-c-r2", "a-b"),
    ]


def test_names_keep_their_digits_when_a_campaign_grows_beyond_them() -> None:
    runs = ordered_runs(["w"], ["even"], 999, "interleaved", 0)
    found = continued(ordered_runs(["w"], ["even"], 1001, "interleaved", 0), [r.name for r in runs])
    assert [found[0].name, found[998].name, found[999].name] == [
        "001-w-even-r1",
        "999-w-even-r999",
        "1000-w-even-r1000",
    ]
