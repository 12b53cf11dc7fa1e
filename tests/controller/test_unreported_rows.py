"""Rows of traces without a report, which do not count because their work is repeated."""

from agents.protocol import Progress, Slot, Work, Worked
from controller.coordinator.reports import NEVER_NS, ReportedWork, ReportTimes

N1, N2 = Slot("n1", 0), Slot("n2", 0)


def reported(epoch: int, at_ns: int) -> Progress:
    return Progress(epoch=epoch, slot=0, at_ns=at_ns, emitted=0, sunk=0)


def test_rows_after_the_last_report_of_an_epoch_are_unreported_until_the_next_one_starts() -> None:
    times = ReportTimes()
    times.start_epoch(1, [N1, N2], {"n1": 100, "n2": 101})
    times.record_report("n1", reported(1, 200))
    times.record_report("n2", reported(1, 250))
    assert times.unreported == []
    times.start_epoch(2, [N1, N2], {"n1": 300, "n2": 301})
    assert sorted(times.unreported) == [("n1", 0, 200, 300), ("n2", 0, 250, 301)]


def test_a_report_of_the_next_epoch_before_its_start_does_not_count_for_the_previous_one() -> None:
    times = ReportTimes()
    times.start_epoch(1, [N1], {"n1": 100})
    times.record_report("n1", reported(1, 200))
    times.record_report("n1", reported(2, 290))
    times.start_epoch(2, [N1], {"n1": 300})
    assert times.unreported == [("n1", 0, 200, 300)]


def test_a_worker_that_never_reported_has_no_row_that_counts() -> None:
    times = ReportTimes()
    times.start_epoch(1, [N1], {"n1": 100, "n2": 101})
    times.record_report("n1", reported(1, 200))
    times.add_worker(1, N2, 150)
    # It may have died, and the next epoch may not include it.
    times.start_epoch(2, [N1], {"n1": 300, "n2": 301})
    assert sorted(times.unreported) == [("n1", 0, 200, 300), ("n2", 0, 150, 301)]


def test_rows_of_a_lost_node_are_unreported_until_it_takes_part_again() -> None:
    times = ReportTimes()
    times.start_epoch(1, [N1, N2], {"n1": 100, "n2": 101})
    times.record_report("n1", reported(1, 200))
    times.record_report("n2", reported(1, 250))
    times.start_epoch(2, [N1], {"n1": 300})
    assert sorted(times.unreported) == [("n1", 0, 200, 300), ("n2", 0, 250, NEVER_NS)]
    times.start_epoch(3, [N1, N2], {"n1": 400, "n2": 401})
    assert sorted(times.unreported) == [("n1", 0, 200, 300), ("n1", 0, 300, 400), ("n2", 0, 250, 401)]


def counting(at_ns: int, epoch: int = 1, **worked: int) -> Progress:
    """Return a report of executors with these numbers of processed rows."""
    executors = {name: Work(0, processed, 0, 0, 0, None, None) for name, processed in worked.items()}
    return Progress(epoch=epoch, slot=0, at_ns=at_ns, emitted=0, sunk=0, executors=executors)


def moving() -> ReportedWork:
    """Return work during a move: the new worker has reported after the cut, the old worker has not."""
    work = ReportedWork()
    work.times.start_epoch(1, [N1, N2], {"n1": 100, "n2": 100})
    work.record("n1", counting(200, moves=10))
    work.record("n2", counting(200, stays=3))
    work.hold(1)
    work.record("n2", counting(250, stays=4, moves=15))
    return work


def test_totals_of_a_moved_executor_count_once_all_workers_have_passed_the_barrier() -> None:
    work = moving()
    assert work.bolts.worked == {"moves": Worked(0, 10), "stays": Worked(0, 3)}
    work.record("n1", counting(260, moves=14))
    work.record("n1", counting(270))
    work.release()
    work.record("n2", counting(300, stays=4, moves=16))
    assert work.bolts.worked == {"moves": Worked(0, 16), "stays": Worked(0, 4)}
    work.times.start_epoch(2, [N1, N2], {"n1": 400, "n2": 400})
    assert sorted(work.times.unreported) == [("n1", 0, 270, 400), ("n2", 0, 300, 400)]


def test_rows_after_a_move_do_not_count_if_the_old_worker_dies_before_its_report() -> None:
    work = moving()
    work.times.start_epoch(2, [N1, N2], {"n1": 400, "n2": 400})
    assert work.bolts.worked == {"moves": Worked(0, 10), "stays": Worked(0, 3)}
    assert sorted(work.times.unreported) == [("n1", 0, 200, 400), ("n2", 0, 200, 400)]
    # Late reports of that epoch do not count either; reports during a later move do.
    work.record("n2", counting(350, stays=5, moves=17))
    work.hold(2)
    work.record("n2", counting(500, epoch=2, stays=6))
    work.release()
    assert work.bolts.worked == {"moves": Worked(0, 10), "stays": Worked(0, 6)}


def test_work_reported_after_the_start_of_a_recovery_is_repeated() -> None:
    def report(at_ns: int, rows: int, epoch: int = 1) -> Progress:
        executors = {
            "spout[0]": Work(rows, None, None, 0, 0, None, rows),
            "bolt[0]": Work(0, rows, 0, 0, 0, None, None),
        }
        return Progress(epoch=epoch, slot=0, at_ns=at_ns, emitted=0, sunk=0, executors=executors)

    work = ReportedWork()
    work.times.start_epoch(1, [N1], {"n1": 100})
    work.record("n1", report(200, 10))
    work.hold(1)
    work.record("n1", report(250, 15))
    work.record_positions(1, {"spout[0]": 17})
    work.times.start_epoch(2, [N1], {"n1": 400})
    assert work.bolts.worked == {"bolt[0]": Worked(0, 10)}
    assert work.counted.positions == {"spout[0]": 10}
    assert work.times.unreported == [("n1", 0, 200, 400)]
    # Sources emit at least up to the recorded position.
    assert work.sources.positions == {"spout[0]": 17}
    work.record("n1", report(500, 12, epoch=2))
    assert work.bolts.worked == {"bolt[0]": Worked(0, 12)}
