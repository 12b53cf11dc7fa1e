"""Storm's resource-aware scheduling: demands, remaining resources, orders and strategies.

`ledger` tracks the resources of the whole cluster, `attempt` those of one topology being placed. `executor_order`,
`node_order` and `topology_order` sort, the strategies (`strategies`, `search`, `round_robin`) place one topology, and
`rounds` (`rounds_1_1` for engine 1.1) places all topologies and evicts.
"""
