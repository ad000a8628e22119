"""How large a report is and how long it takes to write: 20 made-up subjects under every check, one failing case each.

    python -m benchmarks.reports [FOLDER]      or: make benchmark-reports

One line a file: its size, and the seconds to make and write it. At most 2 MB and 3 s are promised for each.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from conformance.report.writers import WRITERS
from tests.report.made_up import report


def main(folder: Path) -> None:
    made = report(20)
    broken = sum(record.outcome.breaks for subject in made.subjects for record in subject.cases)
    cases = sum(len(subject.cases) for subject in made.subjects)
    print(f"{len(made.subjects)} subjects, {cases} cases, {broken} of them failing")
    for option, write in WRITERS.items():
        path = folder / f"report.{option.rpartition('-')[2]}"
        started = time.perf_counter()
        write(made, path)
        print(f"{path.name:<14} {path.stat().st_size / 1e6:6.3f} MB  {time.perf_counter() - started:6.2f} s")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as name:
            main(Path(name))
