"""Executors: bolts and spouts that run on a worker's thread, their latencies and snapshots."""
