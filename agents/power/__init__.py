"""What a node's energy costs: readers of meters, the arithmetic of their counters, and the thread that samples them.

A *reader* knows one kind of meter (`rapl`, `perf`, `hwmon`, ...) and yields readings of its *domains*; `series` turns
the readings of a domain into samples with unwrapped joules; `metering` opens the first reader that works and whatever
runs beside it; `sampler` asks it ten times a second; `meter` answers what an interval has cost, with a bound.

A value that is not known is missing, with its reason. It is never 0.
"""
