"""State copies and seeks of `millrace check workload`: correct operators pass, faults are reported."""

import io
import json
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.admin.checks.operator_trial import StateCopy
from campaign.admin.checks.process import try_workload
from campaign.admin.checks.trial import TrialReporter
from workloads.apps.wordcount import WordCount, WordCountParams
from workloads.apps.wordcount_operators import Count, CountCombined
from workloads.data.text import LineSpout
from workloads.keyed_state import KeyedState
from workloads.operators import NOTHING, Batch, Context, Emitted, Operator, Row
from workloads.rates import Constant


@given(st.sampled_from([Count, CountCombined]), st.integers(0, 2**32))
def test_a_state_copy_is_exact_with_changes_between_its_pieces(kind: type[Count], seed: int) -> None:
    random = Random(seed)  # noqa: S311 - repeatable
    bolt, control = kind(), kind()

    def work() -> None:
        words = [(f"w{random.randrange(200)}",) for _ in range(random.randint(1, 30))]
        for each in (bolt, control):
            each.process(Batch("split", "default", words if kind is Count else [(word, 2) for (word,) in words]))

    for _ in range(3):
        work()
        copy = StateCopy(bolt, kind(), random)
        while not copy.proceed():
            work()
        assert isinstance(copy.target, kind)
        bolt = copy.target
        assert dict(bolt.answer()) == dict(control.answer())


class Lists(Count):
    """Bolt that keeps the counts in lists, which are changed in place."""

    numbers = KeyedState(list[int])

    def process(self, batch: Batch) -> Emitted:
        for (word,) in batch.rows:
            self.numbers[word].append(1)
        return NOTHING

    def answer(self) -> Iterable[Row]:
        return [(word, sum(numbers)) for word, numbers in self.numbers.items()]


class Forgetful(Lists):
    """Bolt that changes values that it has not read from the table."""

    def __init__(self) -> None:
        self.known: dict[str, list[int]] = {}

    def process(self, batch: Batch) -> Emitted:
        for (word,) in batch.rows:
            if word not in self.known:
                self.known[word] = self.numbers[word]
            self.known[word].append(1)
        return NOTHING


class NotLoading(Lists):
    """Bolt that stores its state, and does not load it."""

    def __init__(self) -> None:
        self.known = Counter[str]()

    def process(self, batch: Batch) -> Emitted:
        self.known.update([word for (word,) in batch.rows])
        return NOTHING

    def store_state(self) -> None:
        self.counts.update(self.known)

    def answer(self) -> Iterable[Row]:
        return self.known.items()


class Assigning(Count):
    def process(self, batch: Batch) -> Emitted:
        self.counts = {**self.counts, **dict.fromkeys([word for (word,) in batch.rows], 1)}  # type: ignore[assignment]
        return NOTHING


class Unsendable(Lists):
    def process(self, batch: Batch) -> Emitted:
        self.numbers["be"].append(object())  # type: ignore[arg-type]
        return NOTHING


class WrongKey(Count):
    """Bolt that counts all words by a key of its own."""

    def process(self, batch: Batch) -> Emitted:
        self.counts["all"] += len(batch.rows)
        return NOTHING


class WrongKind(Count):
    def process(self, batch: Batch) -> Emitted:
        self.counts["be"] = "many"  # type: ignore[assignment]
        return NOTHING


class SeekingTooFar(LineSpout):
    """Spout that seeks one record too far."""

    def seek(self, position: int) -> None:
        super().seek(position + (position > 0))

    def restore(self, state: bytes) -> None:
        super().seek(msgspec.msgpack.decode(state, type=int))


class Stuck(SeekingTooFar):
    def seek(self, position: int) -> None:
        if position:
            raise OSError("no such place")
        super().seek(position)


class FallingTimes(LineSpout):
    """Spout whose record times rise within each source, but not over the whole input."""

    recorded = True

    def open(self, context: Context) -> None:
        super().open(context)
        self.times = Constant(1.0 + context.index).schedule()


def faults(
    monkeypatch: pytest.MonkeyPatch, folder: Path, count: type[Count], spout: type[LineSpout] = LineSpout
) -> dict[str, str]:
    """Check `wordcount` with another bolt or spout; return what is reported, by check."""
    text = folder / "text.txt"
    text.write_text("".join(f"to be or not to be {at % 70}\n" for at in range(500)))

    class Counted(WordCount):
        def operator(self, component: str) -> Operator:
            return {"count": count, "spout": spout}.get(component, partial(super().operator, component))()

    made = Counted(WordCountParams(text=str(text), ackers=0, parallelism={"spout": 2, "split": 1, "count": 2}))
    monkeypatch.setattr("campaign.admin.checks.process.load_workload", lambda _name, _params: made)
    output = io.StringIO()
    try_workload("wordcount", folder / "prepared", TrialReporter(output))
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    return {line["fault"]: line["message"] for line in lines if "fault" in line}


@pytest.mark.parametrize("kind", [Count, Lists])
def test_a_bolt_that_can_be_copied_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: type[Count]) -> None:
    assert faults(monkeypatch, tmp_path, kind) == {}


@pytest.mark.parametrize(
    ("wrong", "check", "why"),
    [
        (Forgetful, "restore", "something is not part of its snapshot"),
        (NotLoading, "restore", "something is not part of its snapshot"),
        (Assigning, "snapshot", "Assigning assigned dict to its state 'counts'"),
        (Unsendable, "snapshot", "state 'numbers', key 'be': Encoding objects of type object is unsupported"),
        (WrongKey, "snapshot", "its state has the key 'all', which is another executor's: keys begin with those"),
        (WrongKind, "snapshot", "state 'counts' has other values than it declares: Expected `int`, got `str`"),
    ],
)
def test_faults_of_copied_state_are_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: type[Count], check: str, why: str
) -> None:
    assert why in faults(monkeypatch, tmp_path, wrong)[check]


@pytest.mark.parametrize(
    ("wrong", "check", "why"),
    [
        (SeekingTooFar, "restore", " sources that seek behind "),
        (Stuck, "operators", "seek of spout[0] fails: OSError: no such place"),
        (FallingTimes, "restore", "spout: times of records fall"),
    ],
)
def test_sources_that_seek_other_records_are_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: type[LineSpout], check: str, why: str
) -> None:
    assert why in faults(monkeypatch, tmp_path, Count, wrong)[check]
