"""Parts shared by schedulers that use observed loads and rates: integer demands, node state, graph partitions."""
