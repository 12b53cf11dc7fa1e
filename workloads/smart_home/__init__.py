"""Load prediction in smart homes: query 1 of the DEBS 2014 grand challenge.

`query` says what is asked for, `loads` answers it with bolts, `application` makes a topology of these, and `reference`
works the answer out in another way. What every term means is told in docs/workloads/smart-home.md.
"""
