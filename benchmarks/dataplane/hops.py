"""Measure the CPU time of a hop, from an executor's router to another executor's operator.

    python benchmarks/dataplane/hops.py [--rounds 5]

Between workers: channel, codec, frames, link and credit of one stream over TCP on this host, in batches of 64. Sender
and receiver are two processes with the settings of workers. For comparison, frames of ready bytes go over the same
socket, which is the lower bound for any system; for large rows also with a `bytes` object made of each field, the lower
bound for systems whose rows own their fields. The result is tuples per CPU second of the busier process. Both
processes first have a core each, if there are two, and then share one core. They are pinned, because the kernel may
put processes that wake each other on one core, which changes how much of the data is still in the receiver's cache.

Within a worker: a shuffle to two bolts whose operators do nothing, minus a plain call of the same operator with the
same batches. Rounds alternate.
"""

import argparse
import os
import select
import socket
import sys
import time
from collections.abc import Callable
from statistics import median
from struct import Struct
from typing import Any
from unittest import mock

from agents.worker.channels import channel
from agents.worker.channels.channel import ChannelId, Delivery, window
from agents.worker.channels.ends import RemoteIncoming, RemoteOutgoing, local_channel
from agents.worker.channels.groupings import Router, Shuffle
from agents.worker.channels.input_gate import InputGate
from agents.worker.channels.linger import FlushTimer
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.process.worker import tune_process
from agents.worker.wire.frame import HEADER, HEADER_BYTES, Codec
from agents.worker.wire.mesh import PeerLink, tune
from workloads.operators import NOTHING, Batch, Bolt, Emitted, Row
from workloads.topology import Executor

BATCH = 64
KEY = ChannelId(0, 1, 0)
LARGE = 8 * 1024
RECEIVE_BYTES = 1024 * 1024

Cores = tuple[int, int]
"""Core of the sender, core of the receiver."""


class NoOp(Bolt):
    """Does nothing."""

    def process(self, batch: Batch) -> Emitted:
        return NOTHING


def connected() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    for end in (near, far):
        tune(end)
        end.setblocking(True)
    return near, far


def measure_pair(
    send: Callable[[socket.socket], None], receive: Callable[[socket.socket], None], cores: Cores
) -> tuple[float, float]:
    """Return the CPU seconds of a forked sender, and of this process as the receiver."""
    near, far = connected()
    reading, writing = os.pipe()
    child = os.fork()
    os.sched_setaffinity(0, {cores[0] if child == 0 else cores[1]})
    if child == 0:
        far.close()
        began = time.process_time()
        send(near)
        os.write(writing, str(time.process_time() - began).encode())
        while near.recv(RECEIVE_BYTES):
            pass
        os._exit(0)
    near.close()
    began = time.process_time()
    receive(far)
    used = time.process_time() - began
    far.close()
    os.waitpid(child, 0)
    sent = float(os.read(reading, 100))
    for descriptor in (reading, writing):
        os.close(descriptor)
    return sent, used


def measure_channel(schema: dict[str, str], rows: list[Row], batches: int, cores: Cores) -> tuple[float, float]:
    """Send batches over a channel; return the CPU seconds of sender and receiver."""

    def send(sock: socket.socket) -> None:
        link, flush_timer = PeerLink(1, 1), FlushTimer()
        link.attach(sock, b"")
        outgoing = RemoteOutgoing(KEY, 1, window(1), flush_timer, Codec(schema), 1, link)
        for _ in range(batches):
            outgoing.add(rows)
            link.flush()
            while outgoing.blocked:
                for credit in link.receive():
                    outgoing.credit(credit.count, credit.length)
                link.flush()
        outgoing.flush()
        link.flush()

    def receive(sock: socket.socket) -> None:
        link, inputs = PeerLink(0, 1), InputGate()
        link.attach(sock, b"")
        incoming = RemoteIncoming(KEY, ("a", "default"), inputs, window(1), Codec(schema), 1, link)
        inputs.join(incoming)
        left = batches * len(rows)
        sock.setblocking(False)
        while left:
            select.select([sock], [], [])
            for received in link.receive():
                incoming.receive(received)
            while isinstance(entry := inputs.take(), Delivery):
                left -= len(entry.rows)
                incoming.consumed(len(entry.rows), entry.nbytes)
            link.flush()

    with mock.patch.object(channel, "BATCH_ROWS", len(rows)):
        return measure_pair(send, receive, cores)


def measure_raw(payload: bytes, frames: int, cores: Cores, copy: bool = False) -> tuple[float, float]:
    """Send frames of ready bytes; return the CPU seconds of sender and receiver.

    With `copy`, the receiver makes an object of every large field.
    """

    def send(sock: socket.socket) -> None:
        for _ in range(frames):
            pieces: list[Any] = [HEADER.pack(1, 0, 0, 1, 0, 1, 64, len(payload)), payload]
            sent = sock.sendmsg(pieces)
            if sent < HEADER_BYTES + len(payload):
                sock.sendall(payload[sent - HEADER_BYTES :])

    def receive(sock: socket.socket) -> None:
        buffer, left = memoryview(bytearray(RECEIVE_BYTES)), frames * (HEADER_BYTES + len(payload))
        while left:
            left -= sock.recv_into(buffer)

    def receive_fields(sock: socket.socket) -> None:
        buffer, size = memoryview(bytearray(RECEIVE_BYTES)), HEADER_BYTES + len(payload)
        fields = Struct(f"{LARGE}s" * (len(payload) // LARGE))
        for _ in range(frames):
            got = 0
            while got < size:
                got += sock.recv_into(buffer[got:size])
            fields.unpack_from(buffer, HEADER_BYTES)

    return measure_pair(send, receive_fields if copy else receive, cores)


def measure_local(batches: int) -> tuple[float, float]:
    """Return the CPU ns per tuple of a shuffle to two bolts of this worker, and of plain calls of the operator."""
    flush_timer = FlushTimer()
    inputs = [InputGate(), InputGate()]
    ends = [
        local_channel(ChannelId(0, at + 1, 0), 0, ("a", "default"), inputs[at], window(1), flush_timer)
        for at in range(2)
    ]
    for queue, (_, incoming) in zip(inputs, ends, strict=True):
        queue.join(incoming)
    channels = [outgoing for outgoing, _ in ends]
    router = Router("a[0]", {"default": [Shuffle(channels, 0)]}, channels)
    no_output = Router("b[0]", {}, [])
    bolts = [BoltExecutor(at + 1, Executor("b", at), NoOp(), no_output, queue) for at, queue in enumerate(inputs)]
    rows = [(at,) for at in range(channel.BATCH_ROWS)]
    count = batches * len(rows)

    began = time.thread_time_ns()
    for now in range(batches):
        router.emit({"default": rows})
        for bolt in bolts:
            while bolt.turn(now):
                pass
    hop = time.thread_time_ns() - began
    operator = NoOp()
    began = time.thread_time_ns()
    for _ in range(batches):
        operator.process(Batch("a", "default", rows))
    return hop / count, (time.thread_time_ns() - began) / count


LARGE_ROWS: list[Row] = [(os.urandom(LARGE),) for _ in range(BATCH)]
TINY_ROWS: list[Row] = [(at,) for at in range(BATCH)]


class PairResults:
    """Results of two workers whose processes run on `cores`.

    Attributes:
        tiny: million tiny tuples per CPU second of the busier process, per round.
        share: CPU time of raw frames divided by that of the channel, for large tuples.
        copied: the CPU time of raw frames divided by the same with fields copied.
    """

    def __init__(self, name: str, cores: Cores) -> None:
        self.name, self._cores = name, cores
        self.tiny: list[float] = []
        self.share: list[float] = []
        self.copied: list[float] = []

    def measure(self) -> str:
        """Measure one round, and return its results as text."""
        count = 8_000
        used = measure_channel({"n": "int"}, TINY_ROWS, count, self._cores)
        self.tiny.append(count * BATCH / max(used) / 1e6)
        count = 1_000
        used = measure_channel({"data": "bytes"}, LARGE_ROWS, count, self._cores)
        payload = b"".join(data for (data,) in LARGE_ROWS[:32])
        raw = measure_raw(payload, 2 * count, self._cores)
        copied = measure_raw(payload, 2 * count, self._cores, copy=True)
        self.share.append(sum(raw) / sum(used))
        self.copied.append(sum(raw) / sum(copied))
        each = [f"{seconds * 1e6 / count / BATCH:.2f}" for seconds in (*used, *raw, *copied)]
        return (
            f"{self.name}: tiny {self.tiny[-1]:.1f} M tuples per CPU s, {LARGE // 1024} KiB: {each[0]} + {each[1]} us "
            f"per tuple, raw {each[2]} + {each[3]}, {self.share[-1]:.0%}; "
            f"raw with fields copied {each[4]} + {each[5]}, {self.copied[-1]:.0%}"
        )


def main() -> int:
    """Parse the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    tune_process()
    allowed = sorted(os.sched_getaffinity(0))
    pairs = [PairResults("a core each", (allowed[0], allowed[-1]))] if len(allowed) > 1 else []
    pairs.append(PairResults("the same core", (allowed[0], allowed[0])))
    hop = []
    for number in range(rounds):
        lines = [pair.measure() for pair in pairs]
        with_hop, plain = measure_local(500)
        hop.append(with_hop - plain)
        lines.append(f"hop within a worker {hop[-1]:.1f} ns; load {os.getloadavg()[0]:.1f}")
        print(f"round {number + 1}: " + "\n         ".join(lines), flush=True)
    for pair in pairs:
        print(
            f"{pair.name}, median (best): tiny {median(pair.tiny):.1f} ({max(pair.tiny):.1f}) M tuples per CPU s of "
            f"the busier process; CPU time of raw frames, large tuples: "
            f"{median(pair.share):.0%} ({max(pair.share):.0%}) of the channel's, "
            f"{median(pair.copied):.0%} ({max(pair.copied):.0%}) of the same with fields copied"
        )
    print(f"hop within a worker, median (best): {median(hop):.1f} ({min(hop):.1f}) ns per tuple")
    return 0


if __name__ == "__main__":
    sys.exit(main())
