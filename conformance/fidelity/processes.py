"""Judging rows on a GPU in processes of their own: a row that breaks its process does not take the others along.

`judge_in_processes` starts a worker with all rows. A worker writes a line before and after each row, and gives up when
the device is no longer usable; the rows that are left go to the next one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

from conformance.fidelity.judge import Verdict, judge, settle
from conformance.fidelity.row import Device, Row
from conformance.fidelity.table import ROWS

SECONDS_A_ROW = 60.0  # the first one of a process also loads CUDA
_MARK = "fidelity-row "


def judge_in_processes(rows: Sequence[Row]) -> Iterator[Verdict]:
    """Verdicts on the GPU of `rows`, in their order."""
    left = [row.name for row in rows]
    while left:
        for verdict in _one_worker(tuple(left)):
            assert verdict.name == left[0]
            left.pop(0)
            yield verdict


def _one_worker(names: Sequence[str]) -> Iterator[Verdict]:
    """What one worker judges of `names`. At least one verdict: a row that kills the worker disagrees."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "conformance.fidelity.processes", *names], stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    judged = 0
    try:
        while True:
            watchdog = threading.Timer(SECONDS_A_ROW, worker.kill)
            watchdog.start()
            line = worker.stdout.readline()
            watchdog.cancel()
            if not line:
                break
            if line.startswith(_MARK):
                judged += 1
                yield Verdict(**json.loads(line.removeprefix(_MARK)))
    finally:
        worker.kill()
        code = worker.wait()
    if judged == 0 or (judged < len(names) and code != 0):
        yield Verdict(names[judged], False, f"the process died with exit code {code}")


def work(names: Sequence[str]) -> None:
    """Judge rows here until one leaves the device unusable. Run in a process of its own."""
    table = {row.name: row for row in ROWS}
    for name in names:
        verdict = judge(table[name], Device.CUDA)
        line = json.dumps({"name": verdict.name, "agrees": verdict.agrees, "seen": verdict.seen})
        print(_MARK + line, flush=True)
        if not settle():
            return


if __name__ == "__main__":
    work(sys.argv[1:])
