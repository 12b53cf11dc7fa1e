"""Synthetic applications: generated rows, a known cost per row, a known number of rows out for each one in.

`operators` has the source, the stage and the sink, calibrated work, and the number of rows per row; `shaped` the
workloads linear, diamond, star and random-dag, with their parameters; `from_topology` the workload of a topology file.
"""
