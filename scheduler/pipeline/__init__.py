"""Communication schedules by steps: what the schedulers `pipeline-linear` and `pmod` are made of.

`distribution`, `refinement` and `timeline` are the three algorithms of pipeline-based linear scheduling, `modular` is
the arithmetic of pipelined dynamic scheduling.
"""
