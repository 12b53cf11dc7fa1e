"""Documents of many MB: JSON is read fast and in little memory, YAML is refused in time, mistakes keep their lines."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from inventory.documents import Document, parse_document, read
from inventory.errors import InputError
from inventory.parsing import MOST_DEEP, MOST_YAML, json_line, yaml_data

LIMIT_S = 5.0
"""Bound of CPU time: a second at most, on a machine five times slower."""

MB = 10
EDGES = MB * 1_000_000 // 80


def traffic(edges: int = EDGES) -> str:
    rows = (
        f'{{"from": "split[{at % 500}]", "to": "count[{at % 300}]", "tuples_per_s": {at}.5, "bytes_per_s": 20480}}'
        for at in range(edges)
    )
    return '{"edges": [\n' + ",\n".join(rows) + "\n]}"


@pytest.mark.parametrize("text", ["- 1\n" * 2_500_000, "[" + "x, " * 3_000_000 + "x]"], ids=["block", "flow"])
def test_ten_megabytes_of_yaml_are_refused_at_once(tmp_path: Path, text: str) -> None:
    path = tmp_path / "large.yaml"
    path.write_text(text)
    start_s = time.process_time()
    with pytest.raises(InputError, match=r"large\.yaml:?.*JSON"):
        read(path)
    assert time.process_time() - start_s < LIMIT_S


def test_the_limit_of_yaml_is_reported_with_the_way_out() -> None:
    message = "t.yaml: 1.2 MB of YAML, of which at most 1 MB are read; write so much as JSON, which is read many times"
    with pytest.raises(InputError, match=re.escape(message)):
        parse_document("- 1\n" * 300_000, "t.yaml")
    assert len(parse_document("- 12345678\n" * (MOST_YAML // 11)).data) == MOST_YAML // 11


def test_memory_for_ten_megabytes_of_traffic_is_a_small_multiple_of_their_size(tmp_path: Path) -> None:
    path = tmp_path / "traffic.json"
    path.write_text(traffic())
    program = (
        "import resource, sys\n"
        "from workloads.traffic import load_traffic\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "edges = len(load_traffic(sys.argv[1]).edges)\n"
        "print(edges, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, check=True, timeout=60)
    edges, kilobytes = map(int, done.stdout.split())
    assert edges == EDGES
    assert kilobytes * 1024 < 6 * path.stat().st_size


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (lambda text: text[:-3], rf"t\.json:{EDGES + 1}: not valid JSON: "),
        (lambda text: text.replace('"to": "count[7]"', '"from": "x"', 1), "the key 'from' is given twice"),
        (lambda text: text.replace("99.5", "1e999", 1), "1e999 is not finite"),
        (lambda text: text[:-1] + ', "x": ' + "[" * 200 + "]" * 200 + "}", "nested too deep"),
        (lambda text: text[:-1] + ', "x": ' + "[" * 99_999 + "]" * 99_999 + "}", "nested too deep"),
    ],
    ids=["torn", "a key twice", "infinite", "deep", "very deep"],
)
def test_a_mistake_in_ten_megabytes_of_json_is_named_at_once(broken: Any, complaint: str) -> None:
    start_s = time.process_time()
    with pytest.raises(InputError, match=complaint):
        parse_document(broken(traffic()), "t.json")
    assert time.process_time() - start_s < 5 * LIMIT_S


def test_a_wrong_value_in_ten_megabytes_of_json_is_named_with_its_line() -> None:
    from workloads.traffic import traffic_from_document

    text = traffic().replace(f"{EDGES // 2}.5", '"many"', 1)
    message = f't.json:{EDGES // 2 + 2}: edges[{EDGES // 2}].tuples_per_s: got "many": '
    with pytest.raises(InputError, match=re.escape(message)):
        traffic_from_document(parse_document(text, "t.json"))


def test_nesting_is_bounded_in_json_as_in_yaml() -> None:
    for deep in (MOST_DEEP + 2, 5_000):
        for text in ("[" * deep + "]" * deep, '{"a":' * deep + "1" + "}" * deep, "- " * deep + "1"):
            with pytest.raises(InputError, match="nested too deep"):
                parse_document(text)
    assert parse_document("[" * MOST_DEEP + "]" * MOST_DEEP).data


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.sampled_from([None, 1]))
def test_the_line_of_a_json_value_is_that_of_the_yaml_reader(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    try:
        _, lines = yaml_data(text, "x")
    except InputError:
        return  # characters that YAML does not have
    for steps, line in lines.items():
        assert json_line(text, steps) == line
    assert json_line(text, ("not", "there")) == lines[()]


class Kind(Struct, forbid_unknown_fields=True, omit_defaults=True):
    count: Annotated[int, Meta(ge=0)] = 0
    share: float = 0.0
    name: str | None = None
    inner: tuple["Kind", ...] = ()
    any: Any = None
    rates: dict[str, float] = {}


PARTS = VALUES | st.sampled_from([1.0, -1, 0, "x", [], {}, 2**64, {"count": 1.0}, {"x": 1}])
KINDS = st.dictionaries(st.sampled_from([*Kind.__struct_fields__, "other"]), PARTS, max_size=4)


@given(KINDS | st.lists(KINDS, max_size=2).map(lambda inner: {"inner": inner}))
def test_json_is_converted_from_its_text_as_from_its_data(value: Any) -> None:
    def outcome(document: Document) -> str:
        try:
            return repr(document.convert(Kind))
        except InputError as fault:
            return "\n".join(line.partition(": ")[2] for line in str(fault).split("\n"))

    text = json.dumps(value)
    assert outcome(parse_document(text)) == outcome(Document("x", json.loads(text)))
    assert msgspec.json.decode(text) == parse_document(text).data
