"""WordCount in Pathway: a count per word of all files of a folder, as a batch, the only way to end by itself.

Runs in Pathway's own environment, started by its `spawn`. MILLRACE_BENCH_TEXT names the folder.
"""

import os

import pathway


@pathway.udf
def split(line: str) -> list[str]:
    return line.split()


lines = pathway.io.plaintext.read(os.environ["MILLRACE_BENCH_TEXT"], mode="static")
words = lines.select(word=split(pathway.this.data)).flatten(pathway.this.word)
pathway.io.null.write(words.groupby(pathway.this.word).reduce(pathway.this.word, count=pathway.reducers.count()))
pathway.run(monitoring_level=pathway.MonitoringLevel.NONE)
