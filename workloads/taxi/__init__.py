"""New York taxi (DEBS 2015): the workloads `taxi`, frequent routes, and `taxi-profit`, profitable areas.

What both queries ask, exactly, and what choices were made, is told in docs/workloads/taxi.md. A cell `x.y` is the whole
number x * 1000 + y here, and a route is start * 1,000,000 + end.
"""
