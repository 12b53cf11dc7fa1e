"""WordCount as a Bytewax dataflow: a count per word, batched source, keyed exchange between workers.

Runs in an environment with Bytewax. Environment variables: MILLRACE_BENCH_TEXT is a file of lines,
MILLRACE_BENCH_PARTITIONS the number of partitions, MILLRACE_BENCH_LOOPS how often each partition reads its lines, and
MILLRACE_BENCH_KIND the output: `running` emits a count for every word received, `final` first counts within each batch
and emits at the end.
"""

import operator
import os
from collections import Counter
from pathlib import Path

import bytewax.operators as op
from bytewax.dataflow import Dataflow, Stream
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

BATCH = 1024
LOOPS = int(os.environ["MILLRACE_BENCH_LOOPS"])
PARTITIONS = int(os.environ["MILLRACE_BENCH_PARTITIONS"])
LINES = Path(os.environ["MILLRACE_BENCH_TEXT"]).read_text(encoding="utf-8").splitlines()


class Partition(StatefulSourcePartition):
    def __init__(self, index: int) -> None:
        self.lines = LINES[index::PARTITIONS]
        self.at = self.loop = 0

    def next_batch(self) -> list[str]:
        if self.loop >= LOOPS:
            raise StopIteration
        batch = self.lines[self.at : self.at + BATCH]
        self.at += BATCH
        if self.at >= len(self.lines):
            self.at = 0
            self.loop += 1
        return batch

    def snapshot(self) -> tuple[int, int]:
        return (self.loop, self.at)


class Source(FixedPartitionedSource):
    def list_parts(self) -> list[str]:
        return [str(index) for index in range(PARTITIONS)]

    def build_part(self, step_id: str, for_part: str, resume_state: tuple[int, int] | None) -> Partition:
        return Partition(int(for_part))


class DiscardingPartition(StatelessSinkPartition):
    def write_batch(self, items: list[tuple[str, int]]) -> None:
        pass


class DiscardingSink(DynamicSink):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> DiscardingPartition:
        return DiscardingPartition()


def running(count: int | None, _word: str) -> tuple[int, int]:
    count = (count or 0) + 1
    return count, count


def running_counts(lines: Stream[str]) -> Stream[tuple[str, int]]:
    words = op.flat_map_batch("split", lines, lambda batch: "\n".join(batch).split())
    keyed = op.key_on("word", words, lambda word: word)
    return op.stateful_map("count", keyed, running)


def final_counts(lines: Stream[str]) -> Stream[tuple[str, int]]:
    counted = op.flat_map_batch("split", lines, lambda batch: list(Counter("\n".join(batch).split()).items()))
    return op.reduce_final("count", counted, operator.add)


flow = Dataflow("wordcount")
kinds = {"running": running_counts, "final": final_counts}
op.output("out", kinds[os.environ["MILLRACE_BENCH_KIND"]](op.input("lines", flow, Source())), DiscardingSink())
