"""Records of results: one type for writing and reading, and no key is lost or renamed."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from analysis.records.file_types import (
    CAMPAIGN_FILE,
    CampaignRecord,
    ExecutorMove,
    Measured,
    Recovery,
    RunRecord,
    Times,
)

KEPT = Path(__file__).parents[1] / "kept_results" / "0.1.0"


def encoded(record: Any) -> Any:
    return json.loads(msgspec.json.encode(record))


@pytest.mark.parametrize("path", sorted(KEPT.glob("runs/*/run.json")), ids=lambda path: path.parent.name)
def test_a_run_of_an_earlier_version_keeps_all_its_keys(path: Path) -> None:
    before = json.loads(path.read_text())
    after = encoded(msgspec.json.decode(path.read_bytes(), type=RunRecord))
    assert after.pop("not_given") == []
    assert after.pop("traffic") is None
    assert after.pop("scheduler_name") is None
    assert after.pop("revisions") == []
    assert after.pop("factors") == {}
    assert after.pop("timeline") == []
    assert after.pop("search") is None
    assert after.pop("load") is None
    assert after.pop("engine") is None
    assert after.pop("left") is None
    assert after.pop("linger_ms") is None
    if after["measured"] is not None:
        assert after["measured"].pop("backlog") is None
        assert after["measured"]["latency_ms"].pop("censored") is None
        assert after["measured"].pop("due_tuples_per_s") is None
        assert after["measured"].pop("revisions") == after["measured"].pop("revision_costs") == []
        assert after["measured"].pop("scalings") == after["measured"].pop("windows") == []
        assert after["measured"].pop("means") == {"whole_run": None, "after_last_revision": None}
        assert after["measured"].pop("decisions") == {}
    assert after == before
    assert list(after) == list(before)


def test_a_campaign_of_an_earlier_version_keeps_all_its_keys() -> None:
    text = (KEPT / CAMPAIGN_FILE).read_bytes()
    assert encoded(msgspec.json.decode(text, type=CampaignRecord)) == {
        **json.loads(text),
        "results_version": 1,
        "hosts": {},
        "clusters": {},
        "accepts_shortfall": False,
    }


def test_keys_of_later_versions_are_ignored_at_every_level() -> None:
    later = {"status": "ok", "workload": "w", "scheduler": "s", "repetition": 1, "new": 1, "times": {"new": 2}}
    record = msgspec.convert(later, RunRecord)
    assert record == RunRecord(status="ok", workload="w", scheduler="s", repetition=1)


def test_times_that_were_not_reached_are_left_out_and_other_unknown_values_are_null() -> None:
    record = encoded(
        RunRecord(
            status="skipped", workload="w", scheduler="s", repetition=1, times=Times(created_utc="now", stages_s={})
        )
    )
    assert record["times"] == {"created_utc": "now", "stages_s": {}}
    assert [key for key, value in record.items() if value == 0 and value is not False] == []
    assert {"measured", "profiles", "gates", "placement"} <= {key for key, value in record.items() if value is None}


def test_a_move_has_the_keys_of_its_outcome() -> None:
    moved = ExecutorMove(
        executor="a[0]",
        source="n1/0",
        target="n2/0",
        at_s=1.0,
        pause_s=0.1,
        state_bytes=0,
        buffered_rows=0,
        cpu_ms=0.0,
    )
    assert list(encoded(moved)) == [
        *("executor", "from", "to", "at_s", "pause_s", "state_bytes", "buffered_rows", "cpu_ms"),
    ]
    assert encoded(moved)["state_bytes"] == 0
    abandoned = ExecutorMove(executor="a[0]", target="n2", at_s=1.0, abandoned="node n2 is lost")
    assert list(encoded(abandoned)) == ["executor", "to", "at_s", "abandoned"]


def test_text_of_nodes_is_printable() -> None:
    cause = "node n1: \x1b]0;title\x07"
    measured = Measured(recoveries=[Recovery(at_s=1.0, took_s=0.5, cause=cause)], refused_connections={"\x07": 1})
    shown = measured.with_printable_text()
    assert shown.recoveries[0].cause == "node n1: \\x1b]0;title\\x07"
    assert shown.refused_connections == {"\\x07": 1}
