"""Ports of a Spark job: other users of this host can neither run nor read anything through them."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import spark_attacker
from unprivileged_user import NOBODY_UID, unprivileged_user

from workloads.generate.taxi_trips import taxi_trips
from workloads.generate.writing import write_rows

ROOT = Path(__file__).parents[2]
ROWS = 300

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]


def listening(root: psutil.Process) -> set[int]:
    processes = [root, *root.children(recursive=True)]
    connections = [each for process in processes for each in process.net_connections("tcp")]
    return {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}


def attacked(ports: set[int]) -> Any:
    with unprivileged_user() as user, user.start([sys.executable, "-P", "-", *map(str, sorted(ports))]) as child:
        output, errors = child.communicate(Path(spark_attacker.__file__).read_text(encoding="utf-8"), timeout=300)
    assert child.returncode == 0, errors
    return json.loads(output)


@pytest.fixture
def streaming_job(tmp_path: Path) -> Iterator[psutil.Process]:
    """A pipeline that has answered part of a stream and waits for the rest."""
    write_rows(tmp_path / "trips.csv", taxi_trips(ROWS, 9), lambda _rows: None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        source = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        command = [sys.executable, "-c", "from millrace.__main__ import main; main()", "pipeline", "debs2015-q1"]
        command += ["--stream", "--input", source, "--output", str(tmp_path / "out")]
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
            try:
                server.settimeout(240)
                connection, _ = server.accept()
                with connection:
                    connection.sendall((tmp_path / "trips.csv").read_bytes())
                    while not list(tmp_path.glob(".out.*/snapshots/part-*")):
                        assert process.poll() is None, process.stderr and process.stderr.read()
                        time.sleep(0.1)
                    yield psutil.Process(process.pid)
                process.communicate(timeout=240)
                assert process.returncode == 0
            finally:
                process.terminate()


def test_another_user_can_neither_run_nor_read_anything(streaming_job: psutil.Process) -> None:
    found = attacked(listening(streaming_job))
    assert (found["run"], found["read"]) == ([], [])
    assert found["rejected"] == 2, "the driver's port and that of the block manager demand authentication"
    assert found["uid"] == (NOBODY_UID if os.geteuid() == 0 else os.geteuid())
