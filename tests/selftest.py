"""Runs the table of mutants in one process: `python -m tests.selftest [NAME ...]`."""

from __future__ import annotations

import argparse
import sys
import time

from conformance.catalogue import Level, Machine, load_catalogue
from conformance.device import open_device
from conformance.engine import Finding, failing_checks
from conformance.spec import AdapterSpec
from conformance.subject import open_subject
from tests.mutants.snapshots import KeptSpec
from tests.mutants.table import CORRECT, MUTANTS

OWN_PROCESS = frozenset({"CG003"})
"""Checks that start a process: seconds each, so that only the mutants that must fail them, and correct subjects, do."""


SPEED = frozenset(check.code for check in load_catalogue() if check.level is Level.PERFORMANCE)
"""Checks that take the time of many calls: for the same subjects alone."""


def findings(
    spec: type[AdapterSpec], machine: Machine, seed: int, leave_out: frozenset[str] = frozenset()
) -> dict[str, Finding]:
    if issubclass(spec, KeptSpec):
        spec.record_truth(machine, seed)
    subject = open_subject(spec(), machine, seed, None)
    try:
        return dict(failing_checks(subject, leave_out, speed=True))
    finally:
        subject.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these subjects")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    killed = alarms = 0
    chosen = [mutant for mutant in MUTANTS if not options.names or mutant.name in options.names]
    correct = [spec for spec in CORRECT if not options.names or spec.name in options.names]
    with open_device(options.device) as machine:
        if machine.device == "cuda":
            bytes_differ = [spec for spec in (*(mutant.spec for mutant in chosen), *correct) if spec().limited]
            chosen = [mutant for mutant in chosen if mutant.spec not in bytes_differ]
            correct = [spec for spec in correct if spec not in bytes_differ]
            print(f"left out, their limits being bytes of emulated CUDA: {[spec.name for spec in bytes_differ]}")
            if not chosen and not correct:
                parser.error("none of the subjects named is left")
        for mutant in chosen:
            started = time.perf_counter()
            found = findings(mutant.spec, machine, options.seed, (OWN_PROCESS | SPEED) - mutant.codes)
            exact = mutant.codes <= found.keys() <= mutant.codes | mutant.by_chance and not any(
                finding.error for finding in found.values()
            )
            killed += exact
            seconds = time.perf_counter() - started
            print(f"{'killed' if exact else 'WRONG ':6} {mutant.name:40} {' '.join(sorted(found))}  ({seconds:.1f} s)")
            if not exact:
                print(f"       expected {' '.join(sorted(mutant.codes))}")
                for code, finding in sorted(found.items()):
                    print(f"       {code}[{finding.case}] {finding.message[:200]}")
        for spec in correct:
            for code, finding in sorted(findings(spec, machine, options.seed).items()):
                alarms += 1
                print(f"FALSE ALARM {spec.name} {code}[{finding.case}] {finding.message[:300]}")
    covered = set().union(*(mutant.codes for mutant in (MUTANTS if options.names else chosen)))
    without = {check.code for check in load_catalogue()} - covered
    print(
        f"mutants: {killed}/{len(chosen)} killed exactly; checks without a mutant: {len(without)}"
        f"{' (' + ' '.join(sorted(without)) + ')' if without else ''}; false alarms on correct subjects: {alarms}"
    )
    return 0 if killed == len(chosen) and not without and not alarms else 1


if __name__ == "__main__":
    sys.exit(main())
