"""Explanation of a plan, for `millrace place --explain`: pure data, printed elsewhere.

`explanation` has the load of every node, the traffic between nodes and a lower bound on W; `details` formats the
algorithm's own `details` as text.
"""
