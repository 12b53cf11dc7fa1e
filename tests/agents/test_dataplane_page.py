"""Pages on the data plane match the code: header, limits, sizes, hop kinds, layers, timeouts."""

import re
import struct
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from agents.protocol import Worked
from agents.worker.channels import channel, linger
from agents.worker.executors import executor
from agents.worker.executors.executor import Snapshot
from agents.worker.task_graph.plan import Hop
from agents.worker.wire import frame, handshake
from agents.worker.wire.handshake import Acceptor, Connector
from controller.coordinator import barrier, failures
from workloads.key_groups import KEY_GROUPS

KIB, MIB = 1 << 10, 1 << 20
ROOT = Path(__file__).parents[2]
WORKER = ROOT / "agents" / "worker"
PAGES = "\n".join(page.read_text() for page in sorted((ROOT / "docs" / "dataplane").glob("*.md")))


def text_of(heading: str) -> str:
    """Return the only section of that name on all pages."""
    found = re.findall(rf"^## {heading}\n(.*?)(?=^##? |\Z)", PAGES, re.DOTALL | re.MULTILINE)
    assert len(found) == 1, f"{len(found)} sections {heading!r}"
    return str(found[0])


def numbers(text: str) -> set[float]:
    return {float(number.replace(",", "")) for number in re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?!\w)", text)}


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
    assert offset in numbers(text_of("The frame"))


def test_fields_lie_where_the_table_says() -> None:
    written = frame.credit(0x0102, 0x03040506, 0x0708090A, 0x0B0C0D0E, 0x0F101112, 0x13141516)
    values = {"kind": 2, "flags": 0, "stream": 0x0102, "epoch": 0x03040506, "sender": 0x0708090A}
    values |= {"receiver": 0x0B0C0D0E, "count": 0x0F101112, "length": 0x13141516}
    for offset, size, name, _ in rows("The frame"):
        at = int(offset)
        assert int.from_bytes(written[at : at + int(size)], "little") == values[name.strip("`")]


def test_kinds_and_limits_match_the_code() -> None:
    kinds = ("DATA", "CREDIT", "END", "BARRIER", "TICK", "STATE", "COPY", "PULL", "LINGER")
    meaning = {name.strip("`"): text for _, _, name, text in rows("The frame")}
    assert meaning["kind"] == ", ".join(f"{getattr(frame, kind)} = {kind}" for kind in kinds)
    assert [row[0] for row in rows("The kinds")] == list(kinds)
    assert numbers(meaning["flags"]) == {frame.STAMPED, frame.COLUMNS, frame.LAST, frame.ROUND}
    assert numbers(meaning["count"]) == {0, 1, frame.MAX_ROWS}
    tick = len(frame.tick(1, 2, 3, 4, 5, 6, 7)) - frame.HEADER_BYTES
    assert numbers(meaning["length"]) == {0, tick, frame.MAX_PAYLOAD, frame.STATE_BYTES}


def test_stamps_and_ticks_are_pairs_of_integers_of_the_documented_sizes() -> None:
    first, _ = frame.data(1, 2, 3, 4, 9, [b"rows"], [(5, 6), (7, -8)])
    assert struct.unpack("<IIqIq", first[frame.HEADER_BYTES :]) == (2, 5, 6, 7, -8)
    written = frame.tick(1, 2, 3, 4, 5, 6, -7)
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
    assert handshake.TIMEOUT_S in numbers(text_of("The handshake"))


@pytest.mark.parametrize(
    ("heading", "values"),
    [
        (
            "A row's way",
            {channel.BATCH_ROWS, channel.BATCH_BYTES // KIB, linger.MAX_LINGER_NS / 1e6, KEY_GROUPS},
        ),
        (
            "A row's way",
            {linger.MEMORY_NS / 1e6, round(100 * linger.IDLE), round(100 * linger.BUSY)},
        ),
        ("The rule", {channel.QUEUE_ROWS, channel.QUEUE_BYTES // MIB}),
        ("The rule", {channel.window(10**9)[0], channel.window(10**9)[1] // KIB}),
        ("An example", {channel.window(4)[0], channel.window(4)[1] // MIB}),
        ("The kinds", {frame.LARGE_BYTES // KIB, frame.STATE_BYTES // MIB, frame.MAX_PAYLOAD // 2 // MIB}),
        ("The protocol of a barrier", {barrier.READY_S, barrier.PASS_S}),
        ("When a move fails", {barrier.READY_S}),
        ("Recovery", {failures.GATHER_S, failures.MOST_RECOVERIES}),
        ("Latency", {executor.FIRST_STRIDE, executor.SAMPLES_PER_S}),
    ],
)
def test_numbers_of_a_section_are_those_of_the_code(heading: str, values: set[float]) -> None:
    assert values <= numbers(text_of(heading))


def test_hop_kinds_are_those_of_the_code() -> None:
    assert [row[0].strip("`") for row in rows("Hop kinds")] == list(get_args(Hop))


def test_every_file_is_listed_below_its_layer_and_layers_are_those_that_the_linter_checks() -> None:
    listed: dict[str, set[str]] = {}
    layer = ""
    for row in rows("Layers"):
        layer = row[0].strip("`") or layer
        listed.setdefault(layer, set()).update(re.findall(r"`(\w+)`", row[1]))
    assert listed == {layer: {path.stem for path in (WORKER / layer).glob("[!_]*.py")} for layer in listed}
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (checked,) = (each["layers"] for each in contracts if each["name"] == "Layers of agents.worker")
    assert [f"agents.worker.{layer}" for layer in reversed(listed)] == checked
