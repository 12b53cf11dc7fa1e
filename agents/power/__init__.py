"""Energy of a node: readers of meters, arithmetic of their counters, and the thread that samples them.

A *reader* supports one kind of meter (`rapl`, `perf`, `hwmon`, ...) and returns readings of its *domains*. `series`
turns the readings of a domain into samples with unwrapped joules. `metering` opens the first reader that works and its
cross-checks. `meter` samples ten times a second, and computes the energy of an interval with an error bound.

An unknown value is missing, with its reason. It is never 0.
"""
