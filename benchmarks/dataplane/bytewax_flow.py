"""WordCount as a Bytewax dataflow: running count per word, batched source, keyed exchange between workers.

Runs in Bytewax's own environment. MILLRACE_BENCH_TEXT names a file of lines, MILLRACE_BENCH_LOOPS says how often
each of two partitions reads it.
"""

import os
from pathlib import Path

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

BATCH = 256
LOOPS = int(os.environ["MILLRACE_BENCH_LOOPS"])
LINES = Path(os.environ["MILLRACE_BENCH_TEXT"]).read_text(encoding="utf-8").splitlines()


class Partition(StatefulSourcePartition):
    def __init__(self, index):
        self.mine = LINES[index::2]
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
        return ["0", "1"]

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


flow = Dataflow("wordcount")
lines = op.input("lines", flow, Source())
words = op.flat_map_batch("split", lines, lambda batch: "\n".join(batch).split())
keyed = op.key_on("word", words, lambda word: word)
counts = op.stateful_map("count", keyed, running)
op.output("out", counts, Sink())
