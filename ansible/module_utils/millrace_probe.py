"""Rate and round trip between two hosts, measured by a peer on one and a connection from the other.

A peer is a process that listens on a host's data address until it is stopped or its lifetime is over. A connection
begins with the peer's token and its purpose; a peer closes connections with a wrong token.
"""

import json
import os
import socket
import statistics
import threading
import time

LIFETIME_S = 600
"""Lifetime of a peer that is not stopped."""

WARM_UP_S, WINDOW_S = 0.3, 0.6
ROUND_TRIPS = 41
ATTEMPTS = 3
_PATIENCE_S = 10.0
_CHUNK = bytes(1 << 16)
_FRAMING = 14 + 20 + 20 + 12
"""Bytes of a frame besides its TCP payload: Ethernet, IP, TCP, and TCP time stamps."""


class ProbeError(Exception):
    """Raised when the other host cannot be reached, or does not respond as a peer."""


def start_peer(address, token):
    """Start a process that listens on an address; return its port."""
    server = socket.create_server((address, 0), family=_family(address))
    port = server.getsockname()[1]
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            for descriptor in range(3):
                os.dup2(nothing, descriptor)
            try:
                _serve(server, token)
            finally:
                os._exit(0)
        os._exit(0)
    os.wait()
    server.close()
    return port


def stop_peer(address, port, token):
    """Stop a peer; do nothing when it has ended."""
    try:
        with _connected(address, port, token, "end"):
            pass
    except ProbeError:
        return


def rate_mbit(address, port, token):
    """Measure the rate of one connection to a peer, in Mbit/s of whole frames."""
    with _connected(address, port, token, "rate") as connection, connection.makefile("rb") as answers:
        segment = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        over = threading.Event()

        def send():
            try:
                while not over.is_set():
                    connection.sendall(_CHUNK)
            except OSError:
                return

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        try:
            line = answers.readline()
        except OSError as fault:
            raise ProbeError(f"{address}: {fault}") from fault
        finally:
            over.set()
        if not line:
            raise ProbeError(f"{address}: the peer hung up")
        report = json.loads(line)
        return report["bytes"] * 8 / report["seconds"] / 1e6 * (segment + _FRAMING) / segment


def round_trip_ms(address, port, token):
    """Measure the median round trip of single bytes to a peer, in ms."""
    times = []
    with _connected(address, port, token, "echo") as connection:
        for _ in range(ROUND_TRIPS):
            before = time.perf_counter()
            try:
                connection.sendall(b".")
                if not connection.recv(1):
                    raise ProbeError(f"{address}: the peer hung up")
            except OSError as fault:
                raise ProbeError(f"{address}: {fault}") from fault
            times.append(time.perf_counter() - before)
    return statistics.median(times) * 1000


def nearest(measure, asked, tolerance):
    """Return the closest of up to three measurements to the requested value: a host may be busy for a moment."""
    found = []
    while len(found) < ATTEMPTS and not any(is_near(got, asked, tolerance) for got in found):
        found.append(measure())
    return min(found, key=lambda got: abs(got - asked))


def is_near(got, asked, tolerance):
    """Return whether a value is within a relative tolerance of the requested one."""
    return abs(got - asked) <= tolerance * asked


def _family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _connected(address, port, token, purpose):
    try:
        connection = socket.create_connection((address, port), timeout=_PATIENCE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(f"{token} {purpose}\n".encode())
    except OSError as fault:
        raise ProbeError(f"{address}: {fault}") from fault
    return connection


def _serve(server, token):
    deadline = time.monotonic() + LIFETIME_S
    over = threading.Event()
    server.settimeout(1.0)
    while time.monotonic() < deadline and not over.is_set():
        try:
            connection, _ = server.accept()
        except TimeoutError:
            continue
        threading.Thread(target=_attend, args=(connection, token, over), daemon=True).start()


def _attend(connection, token, over):
    try:
        with connection:
            connection.settimeout(_PATIENCE_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            words = _line(connection).split()
            if words == [token, "end"]:
                over.set()
            elif words == [token, "echo"]:
                while connection.recv(1):
                    connection.sendall(b".")
            elif words == [token, "rate"]:
                _receive(connection, WARM_UP_S)
                report = _receive(connection, WINDOW_S)
                connection.sendall(json.dumps(report).encode() + b"\n")
    except OSError:
        return


def _line(connection):
    """Read the first line byte by byte, so that the data after it is not consumed."""
    line = b""
    while not line.endswith(b"\n") and len(line) < 200:
        byte = connection.recv(1)
        if not byte:
            break
        line += byte
    return line.decode(errors="replace")


def _receive(connection, seconds):
    """Receive for this time; the measured time ends with the last arrival."""
    start = last = time.perf_counter()
    received = 0
    while last - start < seconds:
        data = connection.recv(1 << 20)
        if not data:
            break
        received += len(data)
        last = time.perf_counter()
    return {"bytes": received, "seconds": max(last - start, 1e-9)}
