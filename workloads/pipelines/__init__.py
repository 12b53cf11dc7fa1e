"""Spark data pipelines over the recordings of the DEBS challenges.

`stretches` and `accept` turn raw files into accepted rows by the rules of `workloads.recordings`, reduced to what a
query needs of them; the query (`pipeline`) makes tables of these, in one go (`reading`) or piece by piece
(`streaming`). `prepare` (`repair`) reads them by `source` and `lines`, which also say what is wrong with a row.
`running` does all of it, and `job` is the program that spark-submit starts. That one lies here alone with modules
whose names nothing outside has: its folder is searched first.
"""
