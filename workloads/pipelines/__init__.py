"""Spark data pipelines over the recordings of the DEBS challenges.

`stretches` and `accept` turn raw files into accepted rows by the rules of `workloads.recordings`; a query (`pipeline`)
makes tables of them, in one go (`reading`) or piece by piece (`streaming`). `prepare` (`repair`) reads them by `source`
and `lines`, which also say what is wrong with a row. `running` does all of it, and `job` is the program that
spark-submit starts. That one lies here alone with modules whose names nothing outside has: its folder is searched
first.
"""
