"""Measurements of links between two hosts, and their report."""

import json

import pytest
from ansible_modules import module_utils, plugin, run_module

probe = module_utils("millrace_probe")


@pytest.fixture
def peer():
    port = probe.start_peer("127.0.0.1", "token")
    yield port
    probe.stop_peer("127.0.0.1", port, "token")


def test_a_peer_measures_rate_and_round_trip(peer):
    assert probe.rate_mbit("127.0.0.1", peer, "token") > 1
    assert 0 < probe.round_trip_ms("127.0.0.1", peer, "token") < 10_000


def test_a_peer_rejects_a_wrong_token(peer):
    with pytest.raises(probe.ProbeError):
        probe.round_trip_ms("127.0.0.1", peer, "guess")
    with pytest.raises(probe.ProbeError):
        probe.rate_mbit("127.0.0.1", peer, "guess")
    probe.stop_peer("127.0.0.1", peer, "guess")
    assert probe.round_trip_ms("127.0.0.1", peer, "token") > 0


def test_a_stopped_peer_no_longer_answers():
    port = probe.start_peer("127.0.0.1", "token")
    probe.stop_peer("127.0.0.1", port, "token")
    for _ in range(50):
        try:
            probe.round_trip_ms("127.0.0.1", port, "token")
        except probe.ProbeError:
            break
    with pytest.raises(probe.ProbeError, match=r"127\.0\.0\.1"):
        probe.round_trip_ms("127.0.0.1", port, "token")


def test_the_measurement_nearest_to_the_target_counts_and_one_within_tolerance_is_the_last():
    values = iter([50.0, 101.0, 100.0])
    assert probe.nearest(lambda: next(values), 100, 0.05) == 101.0
    values = iter([50.0, 80.0, 70.0])
    assert probe.nearest(lambda: next(values), 100, 0.05) == 80.0


def test_a_link_that_is_slower_than_requested_fails_its_check(peer):
    link = {"to": "n2", "address": "127.0.0.1", "rate_mbit": 1e9, "delay_ms": 0.0, "back_ms": 4.0}
    away = {"to": "n3", "address": "127.0.0.1", "rate_mbit": 1.0, "delay_ms": 0.0, "back_ms": 0.0}
    answer = run_module(
        "millrace_verify_links",
        {
            "links": [link, away],
            "ports": {"n2": peer},
            "token": "token",
            "rate_tolerance": 0.05,
            "trip_tolerance": 0.0,
        },
    )
    rate, trip = answer["checks"]
    assert (rate["to"], rate["what"], rate["asked"], rate["unit"], rate["ok"]) == ("n2", "link", 1e9, "Mbit/s", False)
    assert 0 < rate["got"] < 1e9
    assert (trip["what"], trip["asked"], trip["unit"]) == ("rtt", 4.0, "ms")


def test_checks_of_all_hosts_are_reported_with_requested_and_measured_values():
    checks = plugin("action_plugins", "millrace_checks")
    slow = {"to": "n2", "what": "link", "asked": 100.0, "got": 61.23456, "unit": "Mbit/s", "ok": False, "reason": ""}
    cores = {"what": "cores on line", "asked": 2, "got": 2, "unit": "cores", "ok": True, "reason": ""}
    variables = {"n1": {"verify_host": {"checks": [cores]}, "verify_links": {"checks": [slow]}}, "n2": {}}
    found = list(checks.gathered(["n1", "n2"], variables))
    assert [check["to"] for check in found] == [None, "n2"]
    assert found[1]["says"] == "n1: link to n2: asked 100.0 Mbit/s, got 61.23 Mbit/s"
    json.dumps(found)
