"""Schedulers: place the executors of topologies on the slots of a cluster.

`problem` declares the input (`Problem`) and the output (`Plan`) of a scheduler, `validation` rejects invalid plans,
`cost` measures plans, and `registry` finds schedulers by name. `algorithms` has one file per scheduler. Schedulers are
pure functions; they use no processes, sockets or clocks.
"""
