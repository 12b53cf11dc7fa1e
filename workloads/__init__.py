"""The applications: what is computed, on which data, and how an answer is checked.

`topology` describes an application as a graph of components, `traffic` what was observed of it,
`operators` is the interface that a spout or a bolt implements, and `workload` ties them together with
data and a reference answer. This room knows nothing of nodes or placement.
"""
