"""Fast checks of a change, as `./run check` starts them: format, lint, types, imports, documents and quick tests.

Every step runs; its name, time and outcome are shown, and its output where it fails. The exit status is then 1.
`--no-tests` leaves out the steps that `./run test` includes.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = Path(sys.executable).parent
PYTEST = (sys.executable, "-m", "pytest", "--quiet", "--numprocesses")

QUICK = {
    "agents": "channel codec facts frame plan power_energy router",
    "analysis": "saturation spark_class_archive statistics",
    "campaign": "agenda agenda_cpu run_order",
    "inventory": "document_messages flops params parsing power_index",
    "scheduler": """
        aniello_offline aniello_online checking cost d_storm default er_stream even flink i_scheduler isolation matrix
        multitenant p_scheduler pipeline_steps r_storm ras_strategies registry resource_aware slots t_storm top_storm
        """,
    "workloads": "key_groups lines operators rates row_digest shapes topology_file traffic_file",
}
"""Room -> its quick tests: they start no processes, and no file takes more than a second or two."""


def quick_tests() -> list[str]:
    """Return the paths of the quick tests."""
    return [f"tests/{room}/test_{name}.py" for room, names in QUICK.items() for name in names.split()]


NO_TESTS = "--no-tests"

STEPS = {
    "format": (PROGRAMS / "ruff", "format", "--check", "."),
    "lint": (PROGRAMS / "ruff", "check", "."),
    "types": (PROGRAMS / "mypy",),
    "order of imports": (PROGRAMS / "lint-imports",),
}

TESTS = {
    "documents and house rules": (*PYTEST, "2", "tests/test_docs.py", "tests/test_house.py"),
    "quick tests": (*PYTEST, "2", "--dist", "loadfile", "--hypothesis-profile", "quick", *quick_tests()),
}


def main(tests: bool = True) -> int:
    """Run all steps, or those that are no tests; return 1 where one fails."""
    # Of a commit under way: git commands of tests in repositories of their own would act on this one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    steps = {**STEPS, **TESTS} if tests else STEPS
    failed = []
    for at, (name, command) in enumerate(steps.items(), 1):
        sys.stdout.write(f"[{at}/{len(steps)}] {name} ... ")
        sys.stdout.flush()
        begin = time.monotonic()
        done = subprocess.run(
            [*map(str, command)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        outcome = "failed" if done.returncode else "ok"
        sys.stdout.write(f"{outcome} ({time.monotonic() - begin:.1f} s)\n")
        if done.returncode:
            failed.append(name)
            sys.stdout.write(f"{done.stdout.rstrip()}\n")
    sys.stdout.write(f"FAILED: {', '.join(failed)}\n" if failed else "all checks passed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:] not in ([], [NO_TESTS]):
        sys.exit(f"usage: ./run check [{NO_TESTS}]")
    sys.exit(main(tests=not sys.argv[1:]))
