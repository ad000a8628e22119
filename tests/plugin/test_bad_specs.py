"""A spec that no run could make sense of is one clear line and exit 4, whatever is wrong with it."""

from __future__ import annotations

import pytest
import torch  # noqa: F401 - pytester forgets what an inner run imported, and torch cannot be imported twice

GOOD = """
from conformance.registry import bundled_folder, load_file

Reference = type(load_file(bundled_folder() / "reference" / "spec.py"))
from conformance.spec import AdapterSpec


class Mine(Reference):
    name = "mine"
    {line}
"""


CHANGED = (
    "import dataclasses; from conformance.capabilities import not_implemented, unsupported; "
    "capabilities = dataclasses.replace(Reference.capabilities, {})"
)
STATEFUL = (
    "import dataclasses; from conformance.capabilities import supported; "
    "capabilities = dataclasses.replace(Reference.capabilities, state=supported()); slots_input = 'slots'"
)


def refusal(pytester: pytest.Pytester, source: str, *arguments: str) -> str:
    """The one line that the plugin says about a file of this source."""
    path = pytester.makepyfile(mine=source)
    result = pytester.runpytest_inprocess("-p", "conformance.plugin", f"--adapter={path}", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    lines = [line for line in result.errlines + result.outlines if line.strip() and "Warning" not in line]
    said = [line for line in lines if line.startswith("ERROR: ")]
    assert len(said) == 1, lines
    return said[0]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("hop = 0", "`hop` must be a positive int, found 0"),
        ('hop = "8"', "`hop` must be a positive int, found '8'"),
        ("sample_rate = 0", "`sample_rate` must be a positive int, found 0"),
        ("buckets = ()", "buckets is empty"),
        ("buckets = (b for b in Reference.buckets)", "`buckets` must be a tuple of mappings"),
        ("buckets = 4", "`buckets` must be a tuple of mappings, found 4"),
        ('buckets = ({"batch": 1, "frames": 0},)', "must be a positive int, found 0"),
        ('buckets = ({"batch": True, "frames": 4},)', "must be a positive int, found True"),
        ('buckets = ({"batch": 1, "frames": 4},) * 2', "is a duplicate of b1-f4"),
        ('buckets = ({"frames": 4},)', "must give one size for each of ['batch', 'frames']"),
        ('requires = ("numpy",)', "`requires` must hold Requirement(module, install), found 'numpy'"),
        ('adapter = "Mine"', "`adapter` must be a subclass of GraphAdapter, found 'Mine'"),
        ('trace = ({"batch": 1, "frames": 4},)', "`trace` must be load_trace(__file__) or Trace.of(sizes"),
        ("from conformance.traces import Trace; trace = Trace.of({'frames': 4})", "the trace gives {'frames': 4}"),
        ("serving_buckets = 4", "`serving_buckets` must be a tuple of mappings, found 4"),
        ('serving_buckets = ({"frames": 4},)', "must give one size for each of ['batch', 'frames']"),
        ("limits = 4", "`limits` must give the largest size of an axis, found 4"),
        ('limits = {"frames": 8}', "limits['frames'] is 8, which bucket {'batch': 1, 'frames': 16} does not keep"),
        ('limits = {"rows": 8}', "limits['rows'] is 8, which bucket {'batch': 1, 'frames': 4} does not keep"),
        ("build = AdapterSpec.build", "defines no `build`"),
        ("make_inputs = AdapterSpec.make_inputs", "defines no `make_inputs`"),
        ("hop = None", "declares no `hop`"),
        ("capabilities = None", "declares no `capabilities`"),
        ("capabilities = {}", "`capabilities` must be a Capabilities(...), found {}"),
        (CHANGED.format('state=unsupported(" ")'), "capability 'state' is unsupported and says no reason"),
        (CHANGED.format('state=not_implemented("soon")'), "capability 'state' is planned; give its issue's URL"),
        (CHANGED.format("state=True"), "capability 'state' must be supported(), unsupported(reason) or"),
        ('slots_input = "slots"', "`slots_input` is 'slots', and state is not claimed"),
        (STATEFUL, "names `slots_input` and defines no `reset_slots`"),
        (f"{STATEFUL}; reset_slots = print", "`slots_input` must be one of the inputs ['codes'], found 'slots'"),
        ("min_hit_rate = 2.0", "min_hit_rate must lie in 0..1, found 2.0"),
        ("import sys; sys.exit(3)", "does not import: SystemExit: 3"),
        ("raise ValueError('no weights')", "does not import: ValueError: no weights"),
        ("1 +", "does not import: SyntaxError"),
    ],
)
def test_a_senseless_spec_is_refused(pytester: pytest.Pytester, line: str, words: str) -> None:
    said = refusal(pytester, GOOD.format(line=line))
    assert words in said
    assert "mine.py" in said or "adapter 'mine'" in said


@pytest.mark.parametrize("seed", ["-1", "99999999999999999999"])
def test_a_seed_out_of_range_is_refused(pytester: pytest.Pytester, seed: str) -> None:
    assert "expected a number from 0 to 4294967295" in refusal(
        pytester, GOOD.format(line="pass"), f"--conformance-seed={seed}"
    )


def test_a_checkpoint_without_an_adapter_is_refused(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("-p", "conformance.plugin", "--adapter-checkpoint=somewhere")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --adapter-checkpoint goes with one --adapter=NAME*"])


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("no_such_package.module:Spec", "no module 'no_such_package'*PYTHONPATH*"),
        (":", "expected package.module:ATTRIBUTE"),
        ("json:loads", "expected a subclass or an instance of AdapterSpec, found function"),
        (".", "no adapter file spec.py"),
    ],
)
def test_a_token_that_leads_nowhere_says_what_was_expected(pytester: pytest.Pytester, token: str, words: str) -> None:
    result = pytester.runpytest_inprocess("-p", "conformance.plugin", f"--adapter={token}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: *{words}*"])
