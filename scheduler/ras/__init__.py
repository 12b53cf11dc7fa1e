"""Storm's resource-aware scheduling: demands, remaining resources, orders and strategies.

`ledger` tracks the resources of the whole cluster, `attempt` those of one topology being placed. `executor_order` and
`node_order` sort, the strategies (`strategies`, `search`) place one topology, and `rounds` orders and places all
topologies and evicts.
"""
