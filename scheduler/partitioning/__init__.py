"""Placement as graph partitioning: what the schedulers `optimal`, `local-search` and `i-scheduler` share.

Executors are vertices that weigh their load, rates are edges, nodes are parts with capacities of their own; W is
the rate that is cut. `instance` turns a round into whole numbers, `assembling` turns nodes per executor into
a plan.
"""
