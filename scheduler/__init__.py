"""Who runs where: from a cluster, topologies and what was observed to a placement.

`problem` holds what a scheduler is given and what it answers, `checking` refuses wrong answers, `cost` judges
them, `registry` finds schedulers by name. Every other module is one algorithm. Schedulers are pure
functions: they know nothing of processes, sockets or clocks.
"""
