"""docs/reference/rates.md lists every kind with all its keys, and its examples are valid."""

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest
import yaml

from workloads.rates import Rate, rate_of

PAGE = (Path(__file__).parents[2] / "docs/reference/rates.md").read_text()


@pytest.mark.parametrize("kind", get_args(Rate), ids=lambda kind: kind.__struct_config__.tag)
def test_every_kind_is_documented_with_its_keys(kind: type) -> None:
    row = re.search(rf"^\| `{kind.__struct_config__.tag}` \| (.*?) \|", PAGE, re.MULTILINE)
    assert row
    assert re.findall(r"`(\w+)", row[1]) == [field.name for field in msgspec.structs.fields(kind)]
    defaults = {
        f.name: f"{f.default:g}" for f in msgspec.structs.fields(kind) if f.default not in (msgspec.NODEFAULT, None)
    }
    assert dict(re.findall(r"`(\w+)` \((\S+)\)", row[1])) == defaults


def test_the_examples_are_valid_rates() -> None:
    examples = re.findall(r"^rate: .*$", PAGE, re.MULTILINE)
    assert len(examples) == 4
    for example in examples:
        rate_of(yaml.safe_load(example)["rate"])
