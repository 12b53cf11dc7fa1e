"""Energy in the report.

`rows` builds tables from the runs' energy records, `comparison` compares schedulers, `view` arranges one workload for
its figures and its part of the page, and `text` describes the source of the joules and their error.
"""
