"""Schedulers: place the executors of topologies on the slots of a cluster.

`problem` declares the input (`Problem`) and the output (`Plan`) of a scheduler, `registry` finds schedulers by name and
rejects invalid plans, `toolkit.cost` measures plans. `algorithms` has one file per scheduler. Schedulers are pure
functions; they use no processes, sockets or clocks.
"""
