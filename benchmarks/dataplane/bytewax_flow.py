"""WordCount as a Bytewax dataflow: a count per word, batched source, keyed exchange between workers.

Runs in Bytewax's own environment. MILLRACE_BENCH_TEXT names a file of lines, MILLRACE_BENCH_LOOPS says how often each
of MILLRACE_BENCH_PARTITIONS partitions reads its part, MILLRACE_BENCH_KIND what is counted: `running` emits a word's
count whenever it comes, `final` counts each batch by itself first and emits at the end.
"""

import operator
import os
from collections import Counter
from pathlib import Path

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

BATCH = 1024
LOOPS = int(os.environ["MILLRACE_BENCH_LOOPS"])
PARTITIONS = int(os.environ["MILLRACE_BENCH_PARTITIONS"])
LINES = Path(os.environ["MILLRACE_BENCH_TEXT"]).read_text(encoding="utf-8").splitlines()


class Partition(StatefulSourcePartition):
    def __init__(self, index):
        self.mine = LINES[index::PARTITIONS]
        self.at = self.loop = 0

    def next_batch(self):
        if self.loop >= LOOPS:
            raise StopIteration
        batch = self.mine[self.at : self.at + BATCH]
        self.at += BATCH
        if self.at >= len(self.mine):
            self.at = 0
            self.loop += 1
        return batch

    def snapshot(self):
        return (self.loop, self.at)


class Source(FixedPartitionedSource):
    def list_parts(self):
        return [str(index) for index in range(PARTITIONS)]

    def build_part(self, step_id, for_part, resume_state):
        return Partition(int(for_part))


class Null(StatelessSinkPartition):
    def write_batch(self, items):
        pass


class Sink(DynamicSink):
    def build(self, step_id, worker_index, worker_count):
        return Null()


def running(count, _word):
    count = (count or 0) + 1
    return count, count


def running_counts(lines):
    words = op.flat_map_batch("split", lines, lambda batch: "\n".join(batch).split())
    keyed = op.key_on("word", words, lambda word: word)
    return op.stateful_map("count", keyed, running)


def final_counts(lines):
    counted = op.flat_map_batch("split", lines, lambda batch: list(Counter("\n".join(batch).split()).items()))
    return op.reduce_final("count", counted, operator.add)


flow = Dataflow("wordcount")
kinds = {"running": running_counts, "final": final_counts}
op.output("out", kinds[os.environ["MILLRACE_BENCH_KIND"]](op.input("lines", flow, Source())), Sink())
