"""Synthetic applications: generated rows, a known cost per row, a known number of rows out for each one in.

work       CPU work per microsecond: calibrated once per campaign, the same work on every node dealing    number of rows
emitted per record, a function of the record operators  the source, the stage and the sink params     parameters of
linear, diamond, star and random-dag shaped     the workloads
"""
