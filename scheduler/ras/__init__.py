"""The parts of Storm's resource aware scheduling: what is demanded and left, in which order, and the strategies.

`ledger` keeps the books of the whole cluster, `attempt` those of one topology that is being placed. `executor_order`,
`node_order` and `topology_order` sort, the strategies (`search`, `round_robin`, `sort_once`) place one topology, and
`rounds`, for engine 1.1 `rounds_1_1`, go through all of them and evict.
"""
