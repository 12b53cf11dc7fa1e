"""WordCount in Pathway: a count per word of all files of a folder, in batch mode, because only batch programs end.

Runs in an environment with Pathway, started by `pathway spawn`. MILLRACE_BENCH_TEXT is the folder.
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
