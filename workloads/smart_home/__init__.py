"""Load prediction in smart homes: query 1 of the DEBS 2014 grand challenge.

`query` holds the parameters, `loads` the bolts, `application` the topology, and `reference` computes the answer
independently. See docs/workloads/smart-home.md for all terms.
"""
