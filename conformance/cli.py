"""The `audiograph` command: the catalogue and the adapters, to read, to plan, to run without pytest, to begin anew."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.bench.commands import add_commands
from conformance.errors import ConformanceError
from conformance.registry import KnownAdapter, known_adapters, load_adapters
from conformance.versions import kit_version

if TYPE_CHECKING:
    from conformance.report.document import SubjectReport

USAGE_ERROR = 4
"""As pytest's: one exit code for bad input, whichever command it was given to."""

_WIDEST = 72  # characters of a column: the reason why an adapter does not load may be long
_KNOWN_FOR = datetime.timedelta(days=90)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        self.print_usage(sys.stderr)
        self.exit(USAGE_ERROR, f"ERROR: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.run_command
    try:
        return command(options)
    except ConformanceError as error:
        print(f"ERROR: {' '.join(str(error).split())}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        print("interrupted: no verdict", file=sys.stderr)
        return 128 + signal.SIGINT


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="audiograph", description="Conformance of inner CUDA graphs. In CI: pytest --adapter=NAME")
    parser.add_argument("--version", action="version", version=f"audiograph {kit_version()}")
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, run: Callable[[argparse.Namespace], int], help: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=help)
        command.set_defaults(run_command=run)
        return command

    add("list", _list, "the adapters known here: name, what it is, where it comes from")
    add("checks", _checks, "the checks: code, level, promise").add_argument(
        "--markdown", action="store_true", help="all of their documentation, as docs/checks.md"
    )
    add("explain", _explain, "one check: contract, why it matters, how it is checked, what to do").add_argument("code")
    new = add("new", _new, "write an adapter folder that runs once two places are filled in")
    new.add_argument("name")
    new.add_argument("--into", type=Path, default=Path("adapters"), help="parent folder (default: adapters)")
    buckets = add("buckets", _buckets, "the bucket set that pads least for an adapter's serving trace")
    buckets.add_argument("adapter", metavar="ADAPTER", help="whose trace, axes and serving buckets are meant")
    buckets.add_argument("--graphs", type=int, required=True, metavar="K", help="how many graphs may be captured")
    buckets.add_argument("--axis", default="frames", help="the axis to plan along (default: frames)")
    buckets.add_argument("--memory", type=float, metavar="MIB", help="what the largest bucket may take")
    buckets.add_argument(
        "--mib-per-element", type=float, metavar="MIB", help="capture bytes ÷ the product of its sizes"
    )
    gate = add("compare", _compare, "what a migration changes: BEFORE and AFTER are adapters, or JSON reports of them")
    gate.add_argument("before", metavar="BEFORE")
    gate.add_argument("after", metavar="AFTER")
    _add_device_and_seed(gate)
    report = add("report", _report, "make the reports for people from a saved JSON report")
    report.add_argument("report", type=Path, metavar="REPORT.json", help="written by pytest --conformance-json")
    for kind in ("md", "html", "badge"):
        report.add_argument(f"--{kind}", type=Path, metavar="FILE")
    report.add_argument("--benchmarks", type=Path, metavar="RESULT.json", help="of --benchmark-json: show it too")
    report.add_argument("--history", type=Path, metavar="FILE.jsonl", help="of bench-history: show it too")
    add_commands(add)
    for name, run, help in (
        ("plan", _plan, "what would run for an adapter, what not, and why"),
        ("run", _run, "run every check without pytest; same verdicts, same exit codes"),
        ("expect", _expect, "run, and write the failures to expectations.toml, each with a reason to fill in"),
    ):
        command = add(name, run, help)
        command.add_argument("--adapter", action="append", required=True, metavar="ADAPTER")
        _add_device_and_seed(command)
    return parser


def _add_device_and_seed(command: argparse.ArgumentParser) -> None:
    command.add_argument("--graph-device", choices=("auto", "cuda", "emulated"), default="auto")
    command.add_argument("--conformance-seed", type=int, default=0, metavar="N")


def _list(_: argparse.Namespace) -> int:
    for line in describe_known(known_adapters()):
        print(line)
    return 0


def _checks(options: argparse.Namespace) -> int:
    from conformance.catalogue import load_catalogue
    from conformance.handbook import markdown

    checks = load_catalogue()
    if options.markdown:
        print(markdown(checks), end="")
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            print(f"{check.name:<{width}}  {check.level.value:<11}  {check.title}")
    return 0


def _explain(options: argparse.Namespace) -> int:
    from conformance.catalogue import load_catalogue
    from conformance.handbook import find_check, page

    print(page(find_check(options.code, load_catalogue())), end="")
    return 0


def _new(options: argparse.Namespace) -> int:
    from conformance.scaffold import write_adapter

    for path in write_adapter(options.name, options.into):
        print(path)
    print(f"fill in the two places marked FILL IN, then: pytest --adapter={options.into / options.name / 'spec.py'}")
    return 0


def _plan(options: argparse.Namespace) -> int:
    from conformance.catalogue import Blocked, NotApplicable, decide, load_catalogue
    from conformance.device import open_device

    adapters = load_adapters(options.adapter)
    with open_device(options.graph_device) as machine:
        for adapter in adapters:
            print(f"{adapter.spec.name} on {machine.name}")
            for check in load_catalogue():
                decision = decide(check, adapter.spec, machine)
                if isinstance(decision, NotApplicable):
                    what = f"not applicable: {decision.reason}"
                elif isinstance(decision, Blocked):
                    what = f"blocked: {decision.reason}"
                else:
                    what = f"{len(list(check.cases(adapter.spec)))} cases"
                print(f"  {check.name:<32} {what}")
    return 0


def _run(options: argparse.Namespace) -> int:
    from conformance.report.terminal import failure_text, snapshot_notes
    from conformance.unattended import run_unattended
    from conformance.verdict import judge, overall, overall_sentence, sentence

    with _silence():
        kit, records = run_unattended(options.adapter, options.graph_device, options.conformance_seed)
    verdicts = {}
    told: set[tuple[str, str]] = set()
    for case in kit.cases:
        record = records[case.id]
        if record.outcome.breaks and (record.adapter, record.message) not in told:
            told.add((record.adapter, record.message))  # a subject that cannot be built says why once
            print(failure_text(record))
    for adapter in kit.adapters:
        own = [record for record in records.values() if record.adapter == adapter.spec.name]
        verdicts[adapter.spec.name] = judge(record.outcome for record in own)
        for note in snapshot_notes(own):
            print(f"{adapter.spec.name}: {note}")
        print(sentence(adapter.spec.name, own, seed=options.conformance_seed))
    if len(verdicts) > 1:
        print(overall_sentence(verdicts))
    return overall(verdicts.values()).exit_code


def _buckets(options: argparse.Namespace) -> int:
    from conformance.planner import PlanError, coverage, plan_buckets, powers_of_two

    if (options.memory is None) != (options.mib_per_element is None):
        raise PlanError("--memory goes with --mib-per-element: what a bucket takes follows from both")
    (adapter,) = load_adapters([options.adapter])
    spec, axes = adapter.spec, adapter.spec.adapter.axes
    if spec.trace is None:
        raise PlanError(f"adapter {spec.name!r} declares no trace of serving; write trace.toml beside its spec")
    most = options.memory / options.mib_per_element if options.memory else None
    planned = plan_buckets(spec.trace, options.graphs, axes, options.axis, most)
    rows = {"planned": planned, "powers of two": powers_of_two(spec.trace, options.graphs, axes, options.axis)}
    for name in (spec.name, f"{spec.name}@vllm_omni"):
        known = {other.name: other for other in known_adapters()}.get(name)
        if known is not None and (served := known.load().serving_buckets):
            rows[f"serving buckets of {name}"] = served
    for name, chosen in rows.items():
        found = coverage(spec.trace, chosen, axes)
        print(f"{name:<44} {len(chosen):>3} graphs  hit rate {found.hit_rate:6.1%}  padded {found.padded_share:6.1%}")
    for bucket in planned:
        print("  " + ", ".join(f"{axis} {size}" for axis, size in bucket.items()))
    return 0


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Modules, packages and loggers print nothing meanwhile: what a case has to say is in its record.

    Handlers that are made meanwhile keep the stream that they find, so it is never closed.
    """

    class Nowhere(io.TextIOBase):
        def write(self, text: str) -> int:
            return len(text)

    with contextlib.redirect_stdout(Nowhere()), contextlib.redirect_stderr(Nowhere()):
        yield


def _compare(options: argparse.Namespace) -> int:
    from conformance.report.compare import compare, lines

    before, after = _subjects([options.before, options.after], options)
    found = compare(before, after)
    for line in lines(found):
        print(line)
    return 1 if found.regressed else 0


def _report(options: argparse.Namespace) -> int:
    from conformance.bench.history import read_history
    from conformance.bench.results import read_result, report_rows
    from conformance.report.document import read_report
    from conformance.report.files import ReportError
    from conformance.report.writers import WRITERS, require_reports

    files = {kind: path for kind in WRITERS if (path := getattr(options, kind, None)) is not None}
    if not files:
        raise ReportError("nothing to write: give at least one of --md FILE, --html FILE, --badge FILE")
    require_reports(files)
    report = read_report(options.report)
    if options.benchmarks:
        report = replace(report, benchmarks=tuple(report_rows(read_result(options.benchmarks))))
    if options.history:
        report = replace(report, history=tuple(read_history(options.history)))
    for kind, path in files.items():
        WRITERS[kind](report, path)
        print(path)
    return 0


def _subjects(given: Sequence[str], options: argparse.Namespace) -> list[SubjectReport]:
    """One subject for each word: read from a report, or run now, all of those in one go."""
    from conformance.report.document import read_report
    from conformance.report.files import ReportError
    from conformance.unattended import run_unattended

    reports = {word: read_report(Path(word)) for word in given if word.endswith(".json")}
    tokens = list(dict.fromkeys(word for word in given if word not in reports))
    if tokens:
        with _silence():
            kit, records = run_unattended(tokens, options.graph_device, options.conformance_seed)
        for adapter in kit.adapters:
            reports[adapter.token] = kit.report(records.values(), [adapter])
    found: list[SubjectReport] = []
    for word in given:
        subjects = reports[word].subjects
        if len(subjects) != 1:
            names = ", ".join(subject.name for subject in subjects) or "none"
            raise ReportError(f"{word}: expected a report of one adapter, found {names}")
        found.append(subjects[0])
    return found


def _expect(options: argparse.Namespace) -> int:
    from conformance.expectations import expectations_file, to_toml, whole_checks
    from conformance.outcome import Outcome
    from conformance.unattended import run_unattended

    with _silence():
        kit, records = run_unattended(options.adapter, options.graph_device, options.conformance_seed)
    for adapter in kit.adapters:
        own = [case for case in kit.cases if case.adapter is adapter]
        failures = [(case.check.code, case.case.id) for case in own if records[case.id].outcome is Outcome.FAIL]
        whole = whole_checks(failures, [(case.check.code, case.case.id) for case in own])
        path = expectations_file(adapter.spec)
        if failures:
            with path.open("a", encoding="utf-8") as file:
                before = "\n" if file.tell() else ""
                file.write(before + to_toml(whole, datetime.date.today() + _KNOWN_FOR))
        counts = Counter(code for code, _ in failures)
        told = ", ".join(f"{code} ({count})" for code, count in sorted(counts.items())) or "no new failure"
        print(f"{adapter.spec.name}: {told}{f' written to {path}; give each a reason' if failures else ''}")
    return 0


def describe_known(adapters: Sequence[KnownAdapter]) -> list[str]:
    """One line an adapter. One that does not load is listed with the reason: the others can still be used."""
    rows = [(adapter.name, _description(adapter), adapter.origin) for adapter in adapters]
    widths = [min(_WIDEST, max((len(row[column]) for row in rows), default=0)) for column in (0, 1)]
    return [f"{name:<{widths[0]}}  {text:<{widths[1]}}  {origin}" for name, text, origin in rows]


def _description(adapter: KnownAdapter) -> str:
    try:
        documentation = type(adapter.load()).__doc__ or ""
    except ConformanceError as error:
        return f"(does not load: {' '.join(str(error).split())})"
    return documentation.strip().partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
