"""A worker process: the executors of one slot, and the data plane between workers.

Layers, from the bottom up; each imports only those before it:

    wire        bytes between workers: frames, handshake, links
    channels    executor to executor: batches, credits, markers, groupings
    executors   bolts and spouts: turns, schedules, latencies, snapshots
    task_graph  the executors and channels of one epoch, built from a plan and changed by migrations
    process     event loop, state store, metrics, fork server
"""
