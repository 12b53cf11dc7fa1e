"""Pages on the data plane match the code: header, limits, sizes, hop kinds, layers, timeouts."""

import ast
import re
import struct
from pathlib import Path
from typing import get_args

import pytest

from agents.protocol import Worked
from agents.worker.channels import channel
from agents.worker.executors import executor
from agents.worker.executors.executor import Snapshot
from agents.worker.task_graph.plan import Hop
from agents.worker.wire import frame, handshake
from agents.worker.wire.handshake import Acceptor, Connector
from controller.coordinator import barrier, failures
from workloads.key_groups import KEY_GROUPS

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "agents" / "worker"
PAGES = "\n".join(page.read_text() for page in sorted((ROOT / "docs" / "dataplane").glob("*.md")))


def text_of(heading: str) -> str:
    """Return the only section of that name on all pages."""
    found = re.findall(rf"^## {heading}\n(.*?)(?=^##? |\Z)", PAGES, re.DOTALL | re.MULTILINE)
    assert len(found) == 1, f"{len(found)} sections {heading!r}"
    return str(found[0])


def section(heading: str) -> str:
    return " ".join(text_of(heading).split())


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the section's table, without its head."""
    lines = [line for line in text_of(heading).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_table_of_the_frame_matches_its_header() -> None:
    codes = frame.HEADER.format.removeprefix("<")
    assert frame.HEADER.format[0] == "<"
    names = frame.Frame._fields[:-1]
    offset, expected = 0, []
    for name, code in zip(names, codes, strict=True):
        size = struct.calcsize("<" + code)
        expected.append([str(offset), str(size), f"`{name}`"])
        offset += size
    assert [row[:3] for row in rows("The frame")] == expected
    assert offset == frame.HEADER_BYTES
    assert f"{offset} bytes of header" in section("The frame")


def test_fields_lie_where_the_table_says() -> None:
    written = frame.credit(0x0102, 0x03040506, 0x0708090A, 0x0B0C0D0E, 0x0F101112, 0x13141516)
    values = {"kind": 2, "flags": 0, "stream": 0x0102, "epoch": 0x03040506, "sender": 0x0708090A}
    values |= {"receiver": 0x0B0C0D0E, "count": 0x0F101112, "length": 0x13141516}
    for offset, size, name, _ in rows("The frame"):
        at = int(offset)
        assert int.from_bytes(written[at : at + int(size)], "little") == values[name.strip("`")]


def test_kinds_flags_and_limits_match_the_code() -> None:
    meaning = {name.strip("`"): text for _, _, name, text in rows("The frame")}
    kinds = ("DATA", "CREDIT", "END", "BARRIER", "TICK", "STATE", "COPY", "PULL")
    assert meaning["kind"] == ", ".join(f"{getattr(frame, kind)} = {kind}" for kind in kinds)
    assert (
        f"DATA: {frame.STAMPED} = STAMPED, {frame.COLUMNS} = COLUMNS. STATE, COPY: {frame.LAST} = LAST."
        in meaning["flags"]
    )
    assert f"COPY: {frame.ROUND} = ROUND, only with LAST." in meaning["flags"]
    assert f"rows, 1 to {frame.MAX_ROWS:,}." in meaning["count"]
    assert f"DATA: bytes of payload, at most {frame.MAX_PAYLOAD:,}." in meaning["length"]
    assert f"STATE, COPY: at most {frame.STATE_BYTES:,}." in meaning["length"]
    assert f"TICK: {len(frame.tick(1, 2, 3, 4, 5, 6, 7)) - frame.HEADER_BYTES}." in meaning["length"]
    assert [row[0] for row in rows("The kinds")] == list(kinds)
    assert f"A row may take {frame.MAX_PAYLOAD // 2 // 2**20} MiB at most" in section("The kinds")


def test_the_stamp_table_is_as_described() -> None:
    first, _ = frame.data(1, 2, 3, 4, 9, [b"rows"], [(5, 6), (7, -8)])
    table = first[frame.HEADER_BYTES :]
    assert "a `uint32` n, then n times a `uint32` row and an `int64`" in section("The kinds")
    assert struct.unpack("<IIqIq", table) == (2, 5, 6, 7, -8)


def test_a_ticks_payload_is_as_described() -> None:
    written = frame.tick(1, 2, 3, 4, 5, 6, -7)
    assert "The payload of TICK is two `int64`: its stream time and when it was due" in section("The kinds")
    assert struct.unpack("<qq", written[frame.HEADER_BYTES :]) == (6, -7)


def test_a_snapshots_head_is_as_described() -> None:
    head, state = Snapshot(b"state", 7, 8, Worked(9, 10)).pieces()
    places = [(int(offset), int(size or len(state))) for offset, size, _, _ in rows("Checkpoints")]
    found = [(head + state)[offset : offset + size] for offset, size in places]
    expected = [b"MLRS", b"\2", *(number.to_bytes(8, "little") for number in (7, 8, 9, 10, len(state))), state]
    assert found == expected


def test_the_handshakes_messages_have_the_documented_sizes() -> None:
    connector, acceptor = Connector(b"k", "r", 1, 0, 1), Acceptor(b"k", "r", 1, 1)
    hello = connector.hello()
    answer = acceptor.receive(hello)
    sizes = [len(hello), len(answer), len(connector.receive(answer))]
    assert [row[:2] for row in rows("The handshake")] == [
        [who, str(size)] for who, size in zip(("connector", "acceptor", "connector"), sizes, strict=True)
    ]
    assert f"after {handshake.TIMEOUT_S:g} s" in section("The handshake")


@pytest.mark.parametrize(
    ("heading", "text"),
    [
        ("A row's way", f"({channel.BATCH_ROWS} rows, or {channel.BATCH_BYTES // 1024} KiB)"),
        ("A row's way", f"has waited {channel.FLUSH_AGE_NS / 1e6:g} ms"),
        ("A row's way", f"modulo {KEY_GROUPS} is its key group"),
        ("The rule", f"room for {channel.QUEUE_ROWS:,} rows and {channel.QUEUE_BYTES // 2**20} MiB"),
        (
            "The rule",
            f"of {channel.window(10**9)[0]} rows and {channel.window(10**9)[1] // 1024} KiB at least",
        ),
        ("An example", f"the window of each is {channel.window(4)[0]:,} rows and {channel.window(4)[1] // 2**20} MiB"),
        ("The kinds", f"take {frame.LARGE_BYTES // 1024} KiB per row or more"),
        ("The kinds", f"at most {frame.STATE_BYTES // 2**20} MiB each"),
        ("The protocol of a barrier", f"not all are ready within {barrier.READY_S:g} s"),
        ("The protocol of a barrier", f"do not pass within {barrier.PASS_S:g} s"),
        ("When a move fails", f"not all workers are ready within {barrier.READY_S:g} s"),
        ("Recovery", f"waits {failures.GATHER_S:g} s for further failures"),
        ("Recovery", f"After {failures.MOST_RECOVERIES} recoveries in a row"),
        ("Latency", f"begins with {executor.FIRST_STRIDE} records"),
        ("Latency", f"at most {executor.SAMPLES_PER_S:,} samples per second"),
    ],
)
def test_sizes_are_those_of_the_code(heading: str, text: str) -> None:
    assert text in section(heading)


def test_hop_kinds_are_those_of_the_code() -> None:
    assert [row[0].strip("`") for row in rows("Hop kinds")] == list(get_args(Hop))


LAYERS = [layer for row in rows("Layers") for layer in re.findall(r"`(\w+)`", row[0])]


def test_every_layer_is_a_folder() -> None:
    assert set(LAYERS) == {path.parent.name for path in WORKER.glob("*/__init__.py")}


def test_every_file_is_listed_below_its_layer() -> None:
    listed: dict[str, set[str]] = {}
    layer = ""
    for row in rows("Layers"):
        layer = row[0].strip("`") or layer
        listed.setdefault(layer, set()).update(re.findall(r"`(\w+)`", row[1]))
    assert listed == {layer: {path.stem for path in (WORKER / layer).glob("[!_]*.py")} for layer in LAYERS}


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_those_above_it(layer: str) -> None:
    imported = set()
    for path in (WORKER / layer).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("agents.worker."):
                imported.add(node.module.split(".")[2])
    assert imported <= set(LAYERS[: LAYERS.index(layer) + 1])
