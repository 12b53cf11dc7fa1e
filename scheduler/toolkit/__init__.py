"""What several schedulers share: slots, loads, affinity, assignment to nodes."""
