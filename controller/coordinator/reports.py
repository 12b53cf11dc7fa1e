"""Reports of workers: their validation, and the progress of executors across epochs.

Names and paths in reports come from nodes and become names and paths on the controller. Values that the controller can
predict must match exactly; all others must be single file names in the expected folder. An invalid report ends the run.
After a recovery, sources emit at least up to their known positions.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from pathlib import Path

from agents.collected_traces import UnreportedRows
from agents.protocol import Progress, Slot, Stored, Worked
from agents.protocol.node_folders import NodeFolder, component
from inventory.errors import RunError, nearest
from workloads.operators import own_records
from workloads.scaling import all_records, shared_anew
from workloads.topology import Executor

HERE = NodeFolder(Path())
"""A node's folder relative to itself, as paths in reports are."""

NEVER_NS = 2**63 - 1
"""The end of rows of a node that took no part again."""

_MOST_SHOWN = 200


def check_worker(place: Slot, workers: Collection[Slot]) -> None:
    """Check that a report comes from a worker of the run.

    Raises:
        RunError: it does not.
    """
    if place not in workers:
        raise RunError(f"report for slot {place.index}, which has no worker in this run")


def check_stored(node: str, report: Stored, run: str, places: Mapping[str, Slot], tables: Collection[str]) -> None:
    """Check that a snapshot is of an executor on this node and in the expected file.

    Args:
        node: sender of the report.
        report: the report.
        run: name of the run.
        places: executor -> its worker when it passed the barrier.
        tables: tables of the topology's answer.

    Raises:
        RunError: it is not.
    """
    place = places.get(report.executor)
    if place is None or place.node != node:
        raise RunError(f"report of state for {_quoted(report.executor)}, which does not run there")
    file = str(HERE.run(run).snapshot(report.barrier, report.executor))
    if report.file != file:
        raise RunError(f"report of state for {report.executor} in {_quoted(report.file)}; expected: {file!r}")
    check_answers(report.answers, run, tables)


def check_answers(answers: Mapping[str, tuple[str, ...]], run: str, tables: Collection[str]) -> None:
    """Check that answers are for tables of the topology and in files of the answer folder.

    Raises:
        RunError: they are not.
    """
    folder = str(HERE.run(run).answers)
    for table, files in answers.items():
        if table not in tables:
            hint = nearest(table[:_MOST_SHOWN], tables)
            raise RunError(f"answer for {_quoted(table)}, which is no table of the topology{hint}")
        for file in files:
            within, _, name = file.rpartition("/")
            if within != folder:
                raise RunError(f"answer in {_quoted(file)}; expected: a file in {folder!r}")
            component(name)


def check_positions(positions: Iterable[str], spouts: Collection[str]) -> None:
    """Check that positions are for spout executors.

    Raises:
        RunError: they are not.
    """
    for name in positions:
        if name not in spouts:
            hint = nearest(name[:_MOST_SHOWN], spouts)
            raise RunError(f"position for {_quoted(name)}, which is no spout executor of the topology{hint}")


def _quoted(name: str) -> str:
    return repr(name[:_MOST_SHOWN])


class SourcePositions:
    """Highest reported position of each spout executor."""

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}
        self._since = (0, 0)

    @property
    def positions(self) -> Mapping[str, int]:
        """Current positions, by name."""
        return dict(self._positions)

    def record(self, epoch: int, positions: Mapping[str, int], sources_from: int | None = None) -> None:
        """Record positions of an epoch, if sources have been as many since then.

        Args:
            epoch: number of the epoch.
            positions: by name of the source.
            sources_from: as in `Progress`; None: the present sources of the epoch.
        """
        since_epoch, since = self._since
        is_present = (epoch, since if sources_from is None else sources_from) >= (since_epoch, since)
        for name, position in positions.items() if is_present else ():
            self._positions[name] = max(position, self._positions.get(name, 0))

    def record_report(self, progress: Progress) -> None:
        """Record the positions in a report of any epoch."""
        positions = {name: work.position for name, work in progress.executors.items() if work.position is not None}
        self.record(progress.epoch, positions, progress.sources_from)

    def share_anew(self, since: tuple[int, int], sources: Collection[str]) -> None:
        """Let other sources have emitted as many records together; they report positions of their own.

        Args:
            since: epoch and lowest number of the next sources; reports of earlier ones no longer count.
            sources: names of all next sources.
        """
        self._positions = shared_anew(self._positions, sources)
        self._since = since

    def rescale(self, since: int, sizes: Mapping[str, int], positions: Mapping[str, int]) -> None:
        """Replace the positions if the spout is scaled: its next executors share the same records differently.

        Args:
            since: first epoch of the next executors; reports of earlier ones no longer count.
            sizes: component -> number of its next executors.
            positions: of all sources.

        Raises:
            RunError: they have not emitted the first records of the whole input.
        """
        for scaled in {Executor.named(name).component for name in positions} & sizes.keys():
            size, records = sizes[scaled], all_records([positions[f"{scaled}[{at}]"] for at in range(len(positions))])
            self._positions = {f"{scaled}[{index}]": own_records(records, index, size) for index in range(size)}
            self._since = (since, 0)


class ReportTimes:
    """Time of each worker's last report in an epoch, for the rows of its traces that have no report."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, Slot], int] = {}
        self._concluded: list[UnreportedRows] = []
        self._epoch = 0

    @property
    def unreported(self) -> Sequence[UnreportedRows]:
        """Rows of work that is done again after a recovery."""
        gone = [(place, last_ns) for (epoch, place), last_ns in self._last.items() if epoch < self._epoch]
        return [*self._concluded, *(UnreportedRows(place.node, place.index, at, NEVER_NS) for place, at in gone)]

    def record_report(self, node: str, progress: Progress) -> None:
        """Record the time of a report, on the node's clock."""
        self._last[progress.epoch, Slot(node, progress.slot)] = progress.at_ns

    def start_epoch(self, number: int, workers: Collection[Slot], start_ns: Mapping[str, int]) -> None:
        """Conclude the epochs before: no further report of them can arrive.

        Workers of the epoch may have reported already, because marks are answered before sources start.

        Args:
            number: number of the epoch.
            workers: workers of the epoch.
            start_ns: node of the epoch -> start of the epoch, on the node's clock.
        """
        for epoch, place in list(self._last):
            if epoch < number and place.node in start_ns:
                last_ns = self._last.pop((epoch, place))
                self._concluded.append(UnreportedRows(place.node, place.index, last_ns, start_ns[place.node]))
        self._epoch = number
        for place in workers:
            self.add_worker(number, place, start_ns[place.node])

    def add_worker(self, epoch: int, place: Slot, since_ns: int) -> None:
        """Expect reports of a worker, which may die without one.

        Args:
            epoch: number of the epoch.
            place: slot of the worker.
            since_ns: a time before its first row and behind those of earlier epochs, on the node's clock.
        """
        self._last.setdefault((epoch, place), since_ns)


class BoltCounts:
    """Highest reported counts of each bolt executor."""

    def __init__(self) -> None:
        self._worked: dict[str, Worked] = {}
        self._epoch = 0
        self._now: dict[str, Worked] = {}  # of the last epoch alone

    @property
    def worked(self) -> Mapping[str, Worked]:
        """Current counts, by name."""
        return dict(self._worked)

    def forget(self, executors: Iterable[str]) -> None:
        """Forget the counts of executors that begin anew within the epoch."""
        for name in executors:
            self._worked.pop(name, None)
            self._now.pop(name, None)

    def withdraw(self, executors: Iterable[str], others: Sequence[str]) -> None:
        """Let `others` do again what `executors` of the same component had done, which a recovery does without."""
        gone = [self._worked.pop(name, Worked()) for name in executors]
        emitted, processed = (sum(each[at] for each in gone) for at in range(2))
        for index, name in enumerate(others):
            before = self._worked.get(name, Worked())
            self._worked[name] = Worked(
                before.emitted + (emitted + index) // len(others),
                before.processed + (processed + index) // len(others),
            )

    def rescale(self, sizes: Mapping[str, int], executors: Collection[str]) -> None:
        """Let the next executors of scaled components share what these have yet to do again after a recovery.

        Args:
            sizes: component -> number of its next executors; those that are added begin without counts.
            executors: names of all executors so far, which have reported behind their last row.
        """
        for scaled, size in sizes.items():
            own = [name for name in executors if Executor.named(name).component == scaled]
            known = {name: self._worked.pop(name, Worked()) for name in own}
            now = {name: self._now.get(name, known[name]) for name in own}
            emitted, processed = (
                sum(each[at] for each in known.values()) - sum(each[at] for each in now.values()) for at in range(2)
            )
            for index in range(size):
                name = f"{scaled}[{index}]"
                before = now.get(name, Worked())
                self._worked[name] = Worked(
                    before.emitted + (emitted + index) // size, before.processed + (processed + index) // size
                )

    def record_report(self, progress: Progress) -> None:
        """Record the counts in a report of any epoch."""
        if progress.epoch > self._epoch:
            self._epoch = progress.epoch
            self._now.clear()
        for name, work in progress.executors.items():
            if work.processed is not None:
                counts = Worked(work.emitted, work.processed)
                self._worked[name] = _highest(self._worked.get(name, counts), counts)
                if progress.epoch == self._epoch:
                    self._now[name] = _highest(self._now.get(name, counts), counts)


def _highest(one: Worked, other: Worked) -> Worked:
    return Worked(max(one.emitted, other.emitted), max(one.processed, other.processed))


class ReportedWork:
    """All that progress reports say about positions, counts and times.

    Work that counts as done has rows in the traces that count, and the other way round. So some reports are held back,
    and the work in those that are never released counts as little as that of a worker that dies before it reports:

    - The totals of an executor that moves include its work in the old worker, which may die before its last report.
      All workers' reports are held back from the cut of such a barrier until all have passed it.
    - A recovery starts with the counts so far. Later reports of the epochs before do not count.
    - Behind a barrier at which sources are scaled, positions are of others.

    Attributes:
        sources: positions that sources are known to have reached, by all reports.
        counted: positions up to which their rows count.
        bolts, times: by the reports that are not held back.
    """

    def __init__(self) -> None:
        """Start without reports."""
        self.sources, self.counted = SourcePositions(), SourcePositions()
        self.bolts, self.times = BoltCounts(), ReportTimes()
        self._held_up_to = 0
        self._next_sources: int | None = None
        self._held: list[tuple[str, Progress]] = []

    def hold(self, epoch: int, next_sources: int | None = None) -> None:
        """Hold back the reports of an epoch and of those before, until `release`.

        Args:
            epoch: number of the epoch.
            next_sources: lowest number of those that take over from the sources meanwhile.
        """
        # Late reports of a scaling that broke off are of sources that a recovery does not have.
        if next_sources is not None or epoch > self._held_up_to:
            self._next_sources = next_sources
        self._held_up_to = epoch
        self._held.clear()

    def release(self) -> None:
        """Record the reports that have been held back."""
        self._held_up_to, self._next_sources = 0, None
        for node, progress in self._held:
            self.record(node, progress)
        self._held.clear()

    def rescale(self, since: int, sizes: Mapping[str, int], executors: Set[str], at: Mapping[str, int]) -> None:
        """Let the next executors of scaled components continue, of sources at the positions `at`; see its parts."""
        for each in (self.sources, self.counted):
            each.rescale(since, sizes, at)
        self.bolts.rescale(sizes, executors - at.keys())

    def share_anew(self, since: tuple[int, int], sources: Collection[str]) -> None:
        """Let other sources continue in the same epoch, or in the next one; see `SourcePositions.share_anew`."""
        for each in (self.sources, self.counted):
            each.share_anew(since, sources)

    def record(self, node: str, progress: Progress) -> None:
        """Record a report of any epoch."""
        if self._next_sources is None or progress.sources_from < self._next_sources:
            self.sources.record_report(progress)
        if progress.epoch <= self._held_up_to:
            self._held.append((node, progress))
            return
        self.counted.record_report(progress)
        self.bolts.record_report(progress)
        self.times.record_report(node, progress)

    def record_positions(self, epoch: int, positions: Mapping[str, int]) -> None:
        """Record positions that sources had at a checkpoint or at their end; the work before has been reported."""
        self.sources.record(epoch, positions)
        if epoch > self._held_up_to:
            self.counted.record(epoch, positions)
