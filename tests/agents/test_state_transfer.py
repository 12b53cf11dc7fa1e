"""Pre-copy of key groups before a scaling: only groups that leave are copied, in small pieces, while rows arrive."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_scaling_run import LIMITS, MAX_SWEEPS, LiveScalingRun, wordcount
from scripted_run import scripted_run
from scripted_workload import with_inputs

from agents.protocol import Precopy
from agents.worker.task_graph import state_copies
from agents.worker.task_graph.state_copies import ArrivingState, LeavingState
from agents.worker.task_graph.state_transfer import StateTransfer
from agents.worker.wire import frame
from controller.coordinator.interfaces import Scaling
from controller.coordinator.scaling import rescaled_live
from workloads.apps.wordcount_operators import Count, CountCombined
from workloads.key_groups import KEY_GROUPS, key_group
from workloads.keyed_state import Table
from workloads.operator_state import OperatorState
from workloads.operators import Batch

STAYS = None


def copy_all(
    copy: LeavingState, to: dict[int, ArrivingState], between: Callable[[], object] | None = None
) -> list[int]:
    """Copy rounds until they are small; return the sizes of the pieces."""
    sizes: list[int] = []
    left = dict(to)
    while left:
        for receiver, arriving in list(left.items()):
            state, ends_round = copy.piece(receiver)
            sizes.append(len(state))
            arriving.restore(state)
            if between is not None:
                between()
            if ends_round and arriving.ends_copy(0):
                del left[receiver]
    return sizes


def counted(words: list[str]) -> Count:
    count = Count()
    count.process(Batch("split", "default", [(word,) for word in words]))
    return count


def group(word: str) -> int:
    return key_group((word,))


@pytest.mark.parametrize("changing", [0, 1])
def test_only_groups_that_leave_are_copied_in_small_pieces_and_little_is_left(changing: int) -> None:
    words = [f"{at:020}" for at in range(20_000)]
    old = counted(words)
    # A tenth goes to 7, another one to 8.
    receivers = {at: {0: 7, 1: 8}.get(at % 10, STAYS) for at in range(KEY_GROUPS)}
    new = {receiver: Count() for receiver in (7, 8)}
    with mock.patch.multiple(state_copies, PIECE_BYTES=5000, SMALL_ROUND_BYTES=10_000, SORTED_KEYS=1000):
        copy = LeavingState(OperatorState(old), receivers, 1)
        arriving = {at: ArrivingState("count[9]", OperatorState(each), 0, 0) for at, each in new.items()}
        more = mock.Mock(side_effect=lambda: old.process(Batch("split", "default", [(words[-1],), (words[3],)])))
        sizes = copy_all(copy, arriving, more if changing else None)
    rests = copy.rests()
    for at, rest in rests.items():
        OperatorState(new[at]).put(rest)
    copy.release()
    assert max(sizes) < 10_000
    leaving = [word for word in words if receivers[group(word)] is not STAYS]
    assert 3000 < len(leaving) < 5000
    assert sum(sizes) < 25 * len(leaving) * 1.5 + 1000 * len(sizes) * changing
    assert all(len(rest) < 1000 for rest in rests.values())
    assert {word for word, _ in old.answer()} == set(words) - set(leaving)
    for at, count in new.items():
        assert {word for word, _ in count.answer()} == {word for word in leaving if receivers[group(word)] == at}
    assert sum(n for each in (old, *new.values()) for _, n in each.answer()) == len(words) + 2 * more.call_count
    assert type(old.counts) is Table


@given(
    st.sampled_from([Count, CountCombined]),
    st.lists(st.lists(st.sampled_from("abcdefghijklmnop"), min_size=1), max_size=20),
    st.integers(0, 2**32),
)
def test_counts_are_exact_when_words_come_while_their_groups_leave_and_others_arrive(
    kind: type[Count], batches: list[list[str]], seed: int
) -> None:
    random = Random(seed)  # noqa: S311 - it must be repeatable
    owners = [random.choice([0, 1]) for _ in range(KEY_GROUPS)]
    after = [random.choice([0, 1, 2]) for _ in range(KEY_GROUPS)]
    counts = [kind(), kind()]
    staged = [kind(), kind(), kind()]
    copies: list[LeavingState] = []
    begin, end = sorted((random.randint(0, len(batches)), random.randint(0, len(batches))))
    expected: Counter[str] = Counter()
    with mock.patch.multiple(state_copies, PIECE_BYTES=20, SORTED_KEYS=3, FIRST_KEYS=1):
        for at, words in enumerate([*batches, []]):
            if at == begin:
                receivers = [
                    {at: STAYS if after[at] == index else after[at] for at in range(KEY_GROUPS) if owners[at] == index}
                    for index in (0, 1)
                ]
                copies = [LeavingState(OperatorState(counts[i]), receivers[i], 1) for i in (0, 1)]
            for index, copy in enumerate(copies if at < end else ()):
                for receiver in {0, 1, 2} - {index}:
                    if random.random() < 0.7 and copy.has(receiver):
                        OperatorState(staged[receiver]).put(copy.piece(receiver)[0])
            if at == end:
                for copy in copies:
                    for receiver, rest in copy.rests().items():
                        OperatorState(staged[receiver]).put(rest)
                    copy.release()
                counts.append(kind())
                for count, arrived in zip(counts, staged, strict=True):
                    OperatorState(count).absorb(OperatorState(arrived))
            for word in words:
                owner = (owners if at < end else after)[group(word)]
                counts[owner].process(Batch("split", "default", [(word,) if kind is Count else (word, 1)]))
            expected.update(words)
    found = [pair for count in counts for pair in count.answer()]
    assert len(found) == len(dict(found))
    assert dict(found) == expected


def test_executors_that_stay_keep_their_operators_and_exchange_only_what_changes(tmp_path: Path) -> None:
    rest_sizes: list[int] = []
    hand_over = StateTransfer.hand_over_keys

    def recorded_hand_over(self, running, ahead):
        rests, cpu_ns = hand_over(self, running, ahead)
        rest_sizes.extend(map(len, rests.values()))
        return rests, cpu_ns

    scaled = LiveScalingRun(wordcount(tmp_path), tmp_path / "inputs", 4)
    with (
        mock.patch.object(StateTransfer, "hand_over_keys", recorded_hand_over),
        scripted_run(scaled.spec, with_inputs(scaled.workload, scaled.inputs), LIMITS) as run,
    ):
        scaled.sweep(run, 20)
        before = {name: running.operator for name, running in run.executors.items()}
        whole = {
            name: len(OperatorState(operator).snapshot())
            for name, operator in before.items()
            if name.startswith("count")
        }
        scaled.scale(run, 1, {"count": 5}, copying=MAX_SWEEPS)
        after = {name: running.operator for name, running in run.executors.items()}
        assert {name for name in after if before.get(name) is not after[name]} == {"count[4]"}
        # The last round was small, or ended with as much as there was.
        assert len(rest_sizes) == 4
        assert sum(rest_sizes) < sum(whole.values()) / 4
        parts = {report.executor: report.state_bytes for report in scaled.reports}
        # No state: only counts and times.
        assert all(parts[f"count[{at}]"] < 30 for at in range(4))
        scaled.reports.clear()
        scaled.scale(run, 2, {"count": 4}, copying=MAX_SWEEPS)
        assert {name: running.operator for name, running in run.executors.items()} == before
        assert all(not worker.tasks._transfer.is_arriving for worker in run.workers.values())
        assert all(not worker.tasks._transfer.is_leaving for worker in run.workers.values())
        assert scaled.verdict(run).passed


def test_an_executor_that_sends_no_groups_does_not_list_its_keys() -> None:
    count = counted(["call", "me"])
    with mock.patch.object(OperatorState, "all_keys", side_effect=AssertionError):
        copy = LeavingState(OperatorState(count), dict.fromkeys(range(KEY_GROUPS)), 1)
    assert type(count.counts) is Table
    assert copy.rests() == {}
    copy.release()
    assert dict(count.answer()) == {"call": 1, "me": 1}


def test_a_request_for_state_that_an_executor_does_not_send_is_refused(tmp_path: Path) -> None:
    scaled = LiveScalingRun(wordcount(tmp_path), tmp_path / "inputs", 1)
    after = rescaled_live(scaled.spec, Scaling({"count": 3}))
    with scripted_run(scaled.spec, with_inputs(scaled.workload, scaled.inputs), LIMITS) as run:
        for component, why in (("count", "gives none to 99"), ("split", "cannot be copied here")):
            here, place = next(
                (at, slot) for at, slot in run.plan.place.items() if run.plan.executors[at].component == component
            )
            tasks = run.workers[place].tasks
            run.command(place, Precopy(epoch=1, barrier=1, moves=(), workers=after.workers, ports={}, scaled=after))
            (received,) = frame.FrameReader(1).feed(frame.pull(1, here, 1, 99))
            with pytest.raises(frame.FrameError, match=f"state of executor {here}, which {why}"):
                tasks.take(received, 0)
        (received,) = frame.FrameReader(1).feed(b"".join(frame.copy(1, here, 1, b"x", False, 99)))
        with pytest.raises(frame.FrameError, match=f"state of executor {here}, which is not copied to 99 here"):
            tasks.take(received, 0)
