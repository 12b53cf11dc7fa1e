"""A worker process: the executors of one slot, and the data plane between workers.

Layers, from the wire upwards; each is testable alone and knows only those before it:

    codec       a batch of rows <-> bytes, typed per stream
    frame       header and payload; the one place that writes and reads them
    handshake   both sides prove that they know the run's key
    link        one authenticated connection: ordered frames, measured bytes
    channel     one sender executor to one receiver executor: batching and credits
    router      groupings: emitted rows to channels
    executor    one operator instance: its queue, its turn, its busy time
    source      a spout's executor: when records are due, and which are sampled
    loop        one thread: sockets, executors, timers
"""
