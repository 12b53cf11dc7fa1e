"""Short garbage collection in observed runs: reports are not tracked, and settings of the interpreter are restored."""

import gc
import sys

import pytest

from agents.protocol import PairSent, Progress, Sent, Vitals, Work, decode_report, encode
from controller.coordinator.online_loop import brief_pauses

PROGRESS = Progress(
    epoch=1,
    slot=0,
    at_ns=1,
    emitted=2,
    sunk=3,
    executors={"s[0]": Work(1, None, None, 2, 3)},
    sent=(Sent("inter_node", "n2", 1, 2),),
    pairs=(PairSent(0, 1, 2, None),),
)


@pytest.mark.parametrize("report", [PROGRESS, Vitals(epoch=1, cores=1.0, workers={0: 0.5})])
def test_the_garbage_collector_skips_reports(report: Progress | Vitals) -> None:
    found = decode_report(encode(report))
    assert found == report
    assert not gc.is_tracked(found)
    assert isinstance(found, Progress | Vitals)
    assert not gc.is_tracked(found.executors if isinstance(found, Progress) else found.workers)


def test_settings_of_the_interpreter_are_restored_after_a_run_also_if_it_fails() -> None:
    interval_s = sys.getswitchinterval()

    def fail() -> None:
        with brief_pauses():
            assert gc.get_freeze_count() > 1000
            assert sys.getswitchinterval() < interval_s
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert sys.getswitchinterval() == interval_s
    assert gc.get_freeze_count() == 0
