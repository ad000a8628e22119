"""`python -m conformance.fidelity`: judge the table on the emulation, or on a GPU with `--device cuda`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from conformance.fidelity import record
from conformance.fidelity.judge import Verdict, judge
from conformance.fidelity.processes import judge_in_processes
from conformance.fidelity.row import Device, Row
from conformance.fidelity.table import ROWS


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 when every row agrees, 1 when one does not, 2 when there is no device to judge on."""
    parser = _parser()
    options = parser.parse_args(arguments)
    device = Device(options.device)
    if options.record is not None and (device is not Device.CUDA or options.only):
        parser.error("--record holds the whole table as judged on a GPU: give --device cuda, and no --only")
    if device is Device.CUDA and not torch.cuda.is_available():
        print("fidelity: no GPU here; leave out --device cuda to judge the emulation", file=sys.stderr)
        return 2
    rows = [row for row in ROWS if row.judged_on(device) and options.only in row.name]
    verdicts = list(_verdicts(rows, device))
    _print_disagreements(rows, verdicts)
    if options.record is not None:
        record.write(record.new_record(rows, verdicts, torch.cuda.get_device_name()), options.record)
    _print_summary(rows, verdicts, device)
    return 0 if all(verdict.agrees for verdict in verdicts) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m conformance.fidelity", description=__doc__)
    parser.add_argument("--device", choices=[device.value for device in Device], default=Device.EMULATED.value)
    parser.add_argument("--only", default="", metavar="TEXT", help="judge the rows whose name holds TEXT")
    parser.add_argument("--record", type=Path, metavar="PATH", help="write the verdicts of a GPU to PATH")
    return parser


def _verdicts(rows: Sequence[Row], device: Device) -> Iterator[Verdict]:
    if device is Device.CUDA:
        yield from judge_in_processes(rows)
    else:
        yield from (judge(row, device) for row in rows)


def _print_disagreements(rows: Sequence[Row], verdicts: Sequence[Verdict]) -> None:
    for row, verdict in zip(rows, verdicts, strict=True):
        if not verdict.agrees:
            print(f"{row.name}  ({row.group})\n  expected  {row.expected}\n  seen      {verdict.seen}")


def _print_summary(rows: Sequence[Row], verdicts: Sequence[Verdict], device: Device) -> None:
    """Rows that one kind of device alone can judge are told apart: they are not part of N/N."""
    shared = [verdict for row, verdict in zip(rows, verdicts, strict=True) if row.only is None]
    alone = [verdict for row, verdict in zip(rows, verdicts, strict=True) if row.only is not None]
    if alone:
        print(f"rows that can be judged on {device.value} alone: {sum(v.agrees for v in alone)}/{len(alone)}")
    if device is Device.EMULATED:
        print(f"last run on a GPU: {_last_run()}")
    print(f"fidelity: {sum(verdict.agrees for verdict in shared)}/{len(shared)}")


def _last_run() -> str:
    last = record.read()
    if last is None:
        return "never; run `python -m conformance.fidelity --device cuda --record PATH` on one"
    text = str(last)
    apart = [name for name, verdict in last.verdicts.items() if not verdict.agrees]
    outdated = last.outdated(ROWS)
    if apart:
        text += f"\n  disagreed there: {', '.join(apart)}"
    if outdated:
        text += (
            f"\n  {len(outdated)} rows are new or changed since: {', '.join(outdated[:5])}{' …' * (len(outdated) > 5)}"
        )
    return text


if __name__ == "__main__":
    sys.exit(main())
