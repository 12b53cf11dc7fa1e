"""Synthetic applications: generated rows, a known cost per row, a known number of rows out for each one in.

work       what one microsecond of CPU is: calibrated once per campaign, the same work on every node dealing    how many
rows a component makes of a record: decided by the record alone operators  the source, the stage and the sink params
what linear, diamond, star and random-dag have in common shaped     the workloads
"""
