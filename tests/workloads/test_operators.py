"""Base classes of operators, bolts made of functions, and the comparison of keyed answers."""

import doctest

import pytest

from workloads import key_groups, operators
from workloads.data import row_digest
from workloads.operators import Batch, Bolt, Context, Spout, TupleBolt, per_tuple
from workloads.workload import rows_differ


def test_the_examples_in_the_docstrings_run():
    for module in (row_digest, key_groups, operators):
        outcome = doctest.testmod(module)
        assert outcome.attempted > 0
        assert outcome.failed == 0


def test_a_function_per_tuple_becomes_a_bolt():
    @per_tuple
    def repeat(word, times):
        """Say it again."""
        return [(word,)] * times

    bolt = repeat()
    bolt.open(Context("repeat", 0, 1))
    assert isinstance(bolt, Bolt)
    assert bolt.process(Batch("x", "default", [("a", 2), ("b", 0), ("c", 1)])) == {"default": [("a",), ("a",), ("c",)]}
    assert (repeat.__name__, repeat.__doc__, bolt.snapshot()) == ("repeat", "Say it again.", b"")


def test_a_tuple_bolt_takes_rows_in_order_and_may_keep_state():
    class Total(TupleBolt):
        total = 0

        def take(self, name, number):
            self.total += number
            return [(name, self.total)] if number else ()

    batch = Batch("x", "default", [("a", 2), ("b", 0), ("c", 1)])
    bolt = Total()
    assert bolt.process(batch) == {"default": [("a", 2), ("c", 3)]}
    assert bolt.process(batch) == {"default": [("a", 5), ("c", 6)]}


def test_an_operator_without_its_method_raises_an_error():
    with pytest.raises(NotImplementedError, match="next_batch"):
        Spout().next_batch(1)
    with pytest.raises(NotImplementedError, match="process"):
        Bolt().process(Batch("x", "default", []))
    with pytest.raises(NotImplementedError, match="take"):
        TupleBolt().process(Batch("x", "default", [(1,)]))


def test_keyed_answers_are_compared_in_any_order_and_the_first_differences_are_named():
    reference = [(1, "a", 0.5), (2, "a", 1.5), (3, "b", None)]
    assert rows_differ(reversed([list(row) for row in reference]), reference, key_fields=2) == []
    assert rows_differ([], [], key_fields=1) == []
    assert len(rows_differ([], [(n, n) for n in range(100)], key_fields=1, most=5)) == 5
    assert rows_differ([(1, "a", 0.5), (3, "b", 0)], reference, 2) == [
        "(3, 'b') = (0,), the reference has (None,)",
        "(2, 'a') is missing",
    ]
