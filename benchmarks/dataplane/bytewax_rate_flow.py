"""WordCount as a Bytewax dataflow at a rate: every line is due at a time of its own, latencies end at the sink.

Runs in an environment with Bytewax, one worker per process. Environment variables: MILLRACE_BENCH_TEXT is a file of
lines, MILLRACE_BENCH_PARTITIONS the number of partitions, MILLRACE_BENCH_RATE lines per second of all partitions,
MILLRACE_BENCH_SECONDS and MILLRACE_BENCH_WARM_UP_S how long, MILLRACE_BENCH_START_NS the start on the monotonic clock,
and MILLRACE_BENCH_LATENCIES a folder, to which each process writes the latencies of words, in ns, one per line.
"""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

PARTITIONS = int(os.environ["MILLRACE_BENCH_PARTITIONS"])
LINES = Path(os.environ["MILLRACE_BENCH_TEXT"]).read_text(encoding="utf-8").splitlines()
START_NS = int(os.environ["MILLRACE_BENCH_START_NS"])
STEP_NS = round(1e9 * PARTITIONS / float(os.environ["MILLRACE_BENCH_RATE"]))
WARM_NS = START_NS + round(1e9 * float(os.environ["MILLRACE_BENCH_WARM_UP_S"]))
END_NS = START_NS + round(1e9 * float(os.environ["MILLRACE_BENCH_SECONDS"]))
FOLDER = Path(os.environ["MILLRACE_BENCH_LATENCIES"])

Word = tuple[str, int]
"""A word, and the time at which its line was due."""


class Partition(StatefulSourcePartition):
    def __init__(self, index: int) -> None:
        self.lines = LINES[index::PARTITIONS]
        self.emitted = 0

    @property
    def due_ns(self) -> int:
        return START_NS + self.emitted * STEP_NS

    def next_batch(self) -> list[tuple[str, int]]:
        now, batch = time.monotonic_ns(), []
        while self.due_ns <= now and self.due_ns < END_NS:
            batch.append((self.lines[self.emitted % len(self.lines)], self.due_ns))
            self.emitted += 1
        if self.due_ns >= END_NS and not batch:
            raise StopIteration
        return batch

    def next_awake(self) -> datetime:
        return datetime.now(UTC) + timedelta(microseconds=(self.due_ns - time.monotonic_ns()) / 1e3)

    def snapshot(self) -> int:
        return self.emitted


class Source(FixedPartitionedSource):
    def list_parts(self) -> list[str]:
        return [str(index) for index in range(PARTITIONS)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Partition:
        return Partition(int(for_part))


class Latencies(StatelessSinkPartition):
    def __init__(self) -> None:
        self.found: list[int] = []

    def write_batch(self, items: list[tuple[str, Word]]) -> None:
        now = time.monotonic_ns()
        self.found += [now - due_ns for _, (_, due_ns) in items if due_ns >= WARM_NS]

    def close(self) -> None:
        (FOLDER / f"{os.getpid()}.txt").write_text("\n".join(map(str, self.found)))


class Sink(DynamicSink):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> Latencies:
        return Latencies()


def words_of(line: tuple[str, int]) -> list[Word]:
    return [(word, line[1]) for word in line[0].split()]


def running(count: int | None, word: Word) -> tuple[int, tuple[int, int]]:
    count = (count or 0) + 1
    return count, (count, word[1])


flow = Dataflow("wordcount")
keyed = op.key_on("word", op.flat_map("split", op.input("lines", flow, Source()), words_of), lambda word: word[0])
op.output("out", op.stateful_map("count", keyed, running), Sink())
