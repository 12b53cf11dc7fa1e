"""Placement as graph partitioning, shared by the schedulers `optimal`, `local-search` and `i-scheduler`.

Executors are vertices weighted by load, rates are edge weights, nodes are parts with individual capacities; W is the
rate of the cut. `instance` converts a round to integers, `assembling` converts nodes per executor to a plan.
"""
