"""Effect of a revision: figures of the first full window after it, if it was applied and no other change followed."""

import pytest
from scripted_reports import ScriptedReports, observe, pass_time, slot, started

from scheduler.online.observation import PastRevision


def test_the_effect_of_a_revision_is_that_of_the_first_full_window_after_it() -> None:
    run = ScriptedReports()
    monitor = started(run)
    pass_time(monitor, run, 10)
    before = observe(monitor, run.at_s).measured
    run.move("b[0]", "n2/0")
    run.move("b[1]", "n1/0")
    monitor.placed({"b[0]": slot("n2/0"), "b[1]": slot("n1/0")}, run.at_s)
    monitor.remember(PastRevision(at_s=10.0, reason="cut", outcome="done", moves=2, before=before))
    pass_time(monitor, run, 6)
    assert observe(monitor, run.at_s).history[0].effect is None
    pass_time(monitor, run, 1)
    (past,) = observe(monitor, run.at_s).history
    assert past.before is not None
    assert past.effect is not None
    assert (past.before.cut, past.effect.cut) == (pytest.approx(310), pytest.approx(90))
    monitor.remember(PastRevision(at_s=run.at_s, reason="cut", outcome="partial"))
    monitor.remember(PastRevision(at_s=run.at_s, reason="cut", outcome="stale"))
    run.rates = {}
    filled = []
    for _ in range(6):
        pass_time(monitor, run, 1)
        first, second, third = observe(monitor, run.at_s).history
        assert first == past
        filled.append(second.effect is not None and second.effect.cut)
        assert third.effect is None
    assert filled == [False] * 4 + [0.0] * 2


def test_a_revision_has_no_effect_where_the_topology_was_changed_again_before_a_full_window() -> None:
    run = ScriptedReports()
    monitor = started(run, settle_s=1)
    for to in ("n2/0", "n3/0"):
        pass_time(monitor, run, 3)
        run.move("b[0]", to)
        monitor.placed({"b[0]": slot(to)}, run.at_s)
        monitor.remember(PastRevision(at_s=run.at_s, reason="cut", outcome="done", moves=1))
    # A change that only restarts the window does not change the topology.
    monitor.changed(run.at_s, "node_up", "n3")
    pass_time(monitor, run, 12)
    first, second = observe(monitor, run.at_s).history
    assert first.effect is None
    assert second.effect is not None
    monitor.remember(PastRevision(at_s=run.at_s, reason="clocks", outcome="done"))
    monitor.changed(run.at_s + 1, "clock", "n1")
    pass_time(monitor, run, 12)
    assert [past.effect is None for past in observe(monitor, run.at_s).history] == [True, False, True]
