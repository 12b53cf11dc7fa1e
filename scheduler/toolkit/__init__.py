"""Parts shared by several schedulers: slots, communication partners, assignment to nodes, loads and cost."""
