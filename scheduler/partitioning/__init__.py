"""Placement as graph partitioning, shared by the schedulers `optimal`, `local-search` and `i-scheduler`.

Executors are vertices weighted by load, rates are edge weights, nodes are parts with individual capacities; W is the
rate of the cut. `instance` converts a round to integers, `solving` chooses the search by
its size, with a lower bound or without.
"""
