"""Applications: computation, data, and verification of answers.

`topology` describes an application as a graph of components, `traffic` its observed rates and loads, `operators` is the
interface of spouts and bolts, and `workload` combines them with data and a reference answer. This room has no notion of
nodes or placement.
"""
