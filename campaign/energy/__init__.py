"""What a run has cost: its machines' energy, who used it, and how much that is per tuple.

`idle` has the nodes metered without work before and after a run; `machines` brings together what traces say of each
machine; `consumers` divides it; `account` is what `run.json` says.
"""
