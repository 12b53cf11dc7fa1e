"""Communication schedules by steps, for the schedulers `pipeline-linear` and `pmod`.

`refinement` and `timeline` are the three algorithms of pipeline-based linear scheduling, `modular` is the arithmetic of
pipelined dynamic scheduling.
"""
