"""Energy in the report: what runs say of it, which of them may be compared, and in what words.

`record` is the block of `run.json`, `rows` makes tables of it, `comparison` sets schedulers side by side, `view`
arranges one workload for its figures and its part of the page, `words` says where joules come from and how far they may
be off.
"""
