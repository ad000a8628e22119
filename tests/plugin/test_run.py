"""What a conformance run shows and returns."""

from __future__ import annotations

import re
import shlex
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from plugin_toys import RunToy, WriteSpec, last_line, log_of

ALL_PASS = "toy: CONFORMANT — 3 passed, 0 failed; emulated CUDA, torch 2.13.0, seed 0"

KNOWN = """[[known]]
code = "CG201"
case = "b1-f80"
reason = "a click at each chunk's end"
issue = "https://github.com/vllm-project/vllm-omni/issues/4466"
expires = 2999-01-01
"""


def test_a_case_has_the_public_id_and_no_path(spec: WriteSpec, run_toy: RunToy) -> None:
    result = run_toy(f"--adapter={spec()}", "--collect-only", "-q")
    assert result.outlines[:3] == [
        "toy/CG201-exact-bucket[b1-f8]",
        "toy/CG201-exact-bucket[b1-f80]",
        "toy/CG204-batch[b1-f3]",
    ]
    assert result.ret == 0


def test_all_pass_is_conformant_and_said_in_the_very_last_line(spec: WriteSpec, run_toy: RunToy) -> None:
    result = run_toy(f"--adapter={spec()}")
    assert last_line(result) == ALL_PASS
    assert result.ret == 0


def test_nothing_before_the_device_and_the_subject_waits_for_torch(spec: WriteSpec, run_toy: RunToy) -> None:
    token = spec()
    (Path(token).parent / "asks.py").write_text(
        "import sys\ndef pytest_unconfigure(): print('torch imported:', 'torch' in sys.modules)"
    )
    result = run_toy("-p", "asks", f"--adapter={token}")
    assert "torch imported: False" in result.outlines
    assert ALL_PASS in result.outlines


@pytest.mark.parametrize(("open_too", "code"), [("", 0), (', 8: "open"', 6)])
def test_known_failures_that_are_allowed_excuse_nothing_that_is_left_open(
    spec: WriteSpec, run_toy: RunToy, open_too: str, code: int
) -> None:
    token = spec(body=f'behave = {{80: "fail"{open_too}}}')
    (Path(token).parent / "expectations.toml").write_text(KNOWN)
    result = run_toy(f"--adapter={token}", "--conformance-allow-known")
    assert f"exit {code}: every failure is a known one" in last_line(result)
    assert result.ret == code


def test_an_adapter_left_open_beside_one_with_known_failures_is_not_excused(spec: WriteSpec, run_toy: RunToy) -> None:
    known = spec("known", body='behave = {80: "fail"}')
    (Path(known).parent / "expectations.toml").write_text(KNOWN)
    (Path(known).parent / "apart").mkdir()
    spec("unsure", body='behave = {8: "open"}', file="apart/unsure.py")
    result = run_toy(f"--adapter={known}", "--adapter=./apart/unsure.py", "--conformance-allow-known")
    assert last_line(result).startswith("exit 6: every failure is a known one")
    assert last_line(result).endswith("; beside them the run is INCONCLUSIVE")
    assert result.ret == 6


def test_a_distributed_run_ends_with_the_same_line(spec: WriteSpec, run_toy: RunToy) -> None:
    token = spec(body='behave = {80: "fail"}\nsingle = True')
    alone = run_toy(f"--adapter={token}", "--conformance-seed=7")
    shared = run_toy(f"--adapter={token}", "--conformance-seed=7", "-n", "2")
    assert last_line(alone) == (
        "toy: NOT CONFORMANT — 1 passed, 1 failed, 1 not applicable; emulated CUDA, torch 2.13.0, seed 7"
    )
    assert last_line(shared) == last_line(alone)
    assert (alone.ret, shared.ret) == (1, 1)
    assert "wrong from sample 0" in shared.stdout.str()


def test_of_several_adapters_each_is_one_workers(spec: WriteSpec, run_toy: RunToy) -> None:
    tokens = [f"--adapter={spec(name)}" for name in ("one", "two", "three")]
    workers: dict[str, set[str]] = {}
    for line in run_toy(*tokens, "-n", "2", "-v").outlines:
        if found := re.match(r"\[(gw\d)\] .*PASSED (\w+)/CG", line):
            workers.setdefault(found[2], set()).add(found[1])
    assert {name: len(ran) for name, ran in workers.items()} == {"one": 1, "two": 1, "three": 1}
    assert len(set.union(*workers.values())) == 2


def test_a_failure_reads_as_promise_found_likely_cure_repeat(spec: WriteSpec, run_toy: RunToy) -> None:
    token = spec(body='behave = {8: "fail"}')
    result = run_toy(f"--adapter={token}", "--conformance-seed=3")
    lines = result.outlines
    start = lines.index("FAILED toy/CG201-exact-bucket[b1-f8]")
    assert lines[start + 1 : start + 6] == [
        "  promise   exact-bucket holds",
        "  found     wrong from sample 0",
        "  likely    the trim is wrong",
        "  cure      trim by 555",
        f'  repeat    pytest --adapter={token} --graph-device=emulated -k "CG201-exact-bucket[b1-f8]" '
        "--conformance-seed=3",
    ]
    assert "FAILED toy/CG201-exact-bucket[b1-f8] - wrong from sample 0" in lines


def test_the_repeat_command_runs_just_that_case(spec: WriteSpec, run_toy: RunToy) -> None:
    token = spec(body='behave = {8: "fail"}')
    first = run_toy(f"--adapter={token}")
    [command] = [line.removeprefix("  repeat    ") for line in first.outlines if line.startswith("  repeat")]
    again = run_toy(*shlex.split(command)[1:])
    assert last_line(again) == (
        "toy: NOT CONFORMANT in the 1 of 3 cases selected — 0 passed, 1 failed; emulated CUDA, torch 2.13.0, seed 0"
    )


def test_k_selects_a_case_by_its_name_and_not_the_longer_one(spec: WriteSpec, run_toy: RunToy) -> None:
    for distributed in ((), ("-n", "2")):
        result = run_toy(f"--adapter={spec()}", "-k", "CG201-exact-bucket[b1-f8]", *distributed)
        assert last_line(result) == (
            "toy: CONFORMANT in the 1 of 3 cases selected — 1 passed, 0 failed; emulated CUDA, torch 2.13.0, seed 0"
        )


def test_nothing_selected_is_inconclusive(spec: WriteSpec, run_toy: RunToy) -> None:
    result = run_toy(f"--adapter={spec()}", "-k", "CG999")
    assert last_line(result) == "toy: INCONCLUSIVE — no case was selected; seed 0"
    assert result.ret == 6


@pytest.mark.parametrize(
    ("body", "counts", "verdict", "code"),
    [
        ('behave = {8: "error"}', "2 passed, 0 failed, 1 error", "NOT CONFORMANT", 1),
        ('behave = {8: "mute"}', "2 passed, 0 failed, 1 error", "NOT CONFORMANT", 1),
        ('behave = {8: "open"}', "2 passed, 0 failed, 1 inconclusive", "INCONCLUSIVE", 6),
        ("single = True", "2 passed, 0 failed, 1 not applicable", "CONFORMANT", 0),
        ("broken = True", "0 passed, 0 failed, 3 errors", "NOT CONFORMANT", 1),
        ("close_fails = True", "2 passed, 0 failed, 1 error", "NOT CONFORMANT", 1),
    ],
)
def test_outcomes_make_the_verdict(
    spec: WriteSpec, run_toy: RunToy, body: str, counts: str, verdict: str, code: int
) -> None:
    result = run_toy(f"--adapter={spec(body=body)}")
    assert last_line(result) == f"toy: {verdict} — {counts}; emulated CUDA, torch 2.13.0, seed 0"
    assert result.ret == code


def test_an_error_shows_its_traceback_once_and_the_repeat_command(spec: WriteSpec, run_toy: RunToy) -> None:
    result = run_toy(f"--adapter={spec(body='broken = True')}")
    text = result.stdout.str()
    assert text.count("  found     SubjectBuildError: the subject of 'toy' cannot be built:") == 3
    assert text.count('raise RuntimeError("no weights today")') == 1
    assert text.count("  repeat    pytest") == 3


def test_asking_for_a_gpu_that_is_not_there_blocks_every_case(
    toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy
) -> None:
    result = run_toy(f"--adapter={spec()}", "--graph-device=cuda")
    assert last_line(result) == "toy: INCONCLUSIVE — 0 passed, 0 failed, 3 blocked; real CUDA, torch 2.13.0, seed 0"
    assert result.ret == 6
    assert log_of(toy_kit) == ["open device cuda", "close device"]


def test_the_device_is_opened_once_and_one_subject_an_adapter(
    toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy
) -> None:
    result = run_toy(f"--adapter={spec('one')}", f"--adapter={spec('two')}", "-k", "CG201")
    assert log_of(toy_kit) == [
        "open device auto",
        "open one seed 0 checkpoint None",
        "case one 8",
        "case one 80",
        "close one",
        "open two seed 0 checkpoint None",
        "case two 8",
        "case two 80",
        "close two",
        "close device",
    ]
    assert [line.partition(" —")[0] for line in result.outlines[-3:]] == [
        "one: CONFORMANT in the 2 of 3 cases selected",
        "two: CONFORMANT in the 2 of 3 cases selected",
        "2 adapters: CONFORMANT",
    ]


def test_an_interrupted_run_closes_everything_and_has_no_verdict(
    toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy
) -> None:
    body = "class behave:\n    def get(frames):\n        raise KeyboardInterrupt\n"
    result = run_toy(f"--adapter={spec(body=body)}")
    assert last_line(result) == "audiograph: no verdict — pytest ended with exit code 2"
    assert result.ret == 2
    assert log_of(toy_kit)[-2:] == ["close toy", "close device"]


def test_a_stopped_run_says_how_much_it_ran(spec: WriteSpec, run_toy: RunToy) -> None:
    token = spec(body='behave = {8: "fail"}')
    result = run_toy(f"--adapter={token}", "-x")
    assert last_line(result).startswith("toy: NOT CONFORMANT in the 1 of 3 cases run — 0 passed, 1 failed;")


def test_junit_shows_the_reason_of_what_did_not_run(toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy) -> None:
    token = spec(body='behave = {8: "fail", 80: "open"}\nsingle = True')
    for distributed in ((), ("-n", "2")):
        run_toy(f"--adapter={token}", "--junitxml=out.xml", *distributed)
        cases = {case.get("name"): case for case in ElementTree.parse(toy_kit.path / "out.xml").iter("testcase")}
        for name, end, message in (
            ("CG204-batch[b1-f3]", "skipped", "no batch axis"),
            ("CG201-exact-bucket[b1-f80]", "skipped", "eager varies by itself"),
            ("CG201-exact-bucket[b1-f8]", "failure", "wrong from sample 0"),
        ):
            found = cases[name].find(end)
            assert found is not None
            assert found.get("message") == message


def test_a_worker_that_dies_makes_its_case_an_error(spec: WriteSpec, run_toy: RunToy) -> None:
    body = "class behave:\n    def get(frames):\n        import os\n        frames == 80 and os._exit(3)\n"
    result = run_toy(f"--adapter={spec(body=body)}", "-n", "1")
    assert ": NOT CONFORMANT" in last_line(result)
    assert "1 error" in last_line(result)
    assert result.ret == 1


def test_a_checkpoint_reaches_the_subject_and_the_repeat_command(
    toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy
) -> None:
    (toy_kit.path / "weights.bin").touch()
    token = spec(body='loads_checkpoints = True\nbehave = {8: "fail"}')
    result = run_toy(f"--adapter={token}", "--adapter-checkpoint=weights.bin")
    assert "open toy seed 0 checkpoint weights.bin" in log_of(toy_kit)
    assert " --adapter-checkpoint=weights.bin" in result.stdout.str()
