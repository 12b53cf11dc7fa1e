"""Parts shared by several schedulers: slots, loads, affinity, assignment to nodes."""
