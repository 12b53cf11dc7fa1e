"""New York taxi (DEBS 2015): the workloads `taxi`, frequent routes, and `taxi-profit`, profitable areas.

See docs/workloads/taxi.md for the exact queries and our choices. A cell `x.y` is the whole number x * 1000 + y here,
and a route is start * 1,000,000 + end.
"""
