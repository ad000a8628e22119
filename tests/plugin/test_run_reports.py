"""The reports that a run leaves: also a distributed one, one that is broken off, and one that cannot write them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from plugin_toys import RunToy, WriteSpec, last_line, log_of

FILES = {"json": "r.json", "md": "r.md", "html": "r.html", "badge": "r.badge"}
ALL = [f"--conformance-{kind}={name}" for kind, name in FILES.items()]
FAILS = 'behave = {8: "fail"}'
SLEEPS = "class behave:\n    def get(frames):\n        import time\n        frames == 80 and time.sleep(60)\n"


def read(toy_kit: pytest.Pytester) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((toy_kit.path / "r.json").read_text())
    return document


def require_all(folder: Path, *words: str) -> None:
    for kind in ("md", "html"):
        text = (folder / FILES[kind]).read_text()
        assert all(word in text for word in words), kind
    assert json.loads((folder / FILES["badge"]).read_text())["label"] == "audiograph"
    assert not [path for path in folder.iterdir() if path.name.startswith(".r.")]


def test_one_run_leaves_every_report(toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy) -> None:
    result = run_toy(f"--adapter={spec(body=FAILS)}", *ALL)
    assert result.ret == 1
    require_all(toy_kit.path, "wrong from sample 0", "trim by 555", "pytest --adapter=./toy_adapter.py")
    assert read(toy_kit)["ended"] == "complete"
    assert read(toy_kit)["device"] == "emulated"
    assert last_line(result).startswith("toy: NOT CONFORMANT")


def test_a_distributed_run_leaves_the_same_report(toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy) -> None:
    token = spec(body='behave = {8: "fail", 80: "open"}\nsingle = True')
    told = []
    for distributed in ((), ("-n", "2")):
        run_toy(f"--adapter={token}", *ALL, *distributed)
        document = read(toy_kit)
        cases = document["subjects"][0]["cases"]
        told.append([{**case, "seconds": 0} for case in sorted(cases, key=lambda case: (case["check"], case["case"]))])
    assert told[0] == told[1]


def test_junit_says_code_outcome_and_evidence_and_nothing_else(
    toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy
) -> None:
    token = spec(body='behave = {8: "fail", 80: "picture"}')
    for distributed in ((), ("-n", "2")):
        run_toy(f"--adapter={token}", "--junitxml=out.xml", *distributed)
        text = (toy_kit.path / "out.xml").read_text()
        cases = {case.get("name"): case for case in ElementTree.fromstring(text).iter("testcase")}
        assert set(cases) == {"CG201-exact-bucket[b1-f8]", "CG201-exact-bucket[b1-f80]", "CG204-batch[b1-f3]"}
        assert {case.get("classname") for case in cases.values()} == {"conformance.toy"}
        properties = {
            name: [(found.get("name"), found.get("value")) for found in case.iter("property")]
            for name, case in cases.items()
        }
        assert properties["CG201-exact-bucket[b1-f8]"] == [
            ("conformance.code", "CG201"),
            ("conformance.outcome", "failed"),
            ("conformance.evidence", '{"sample":0}'),
        ]
        assert properties["CG201-exact-bucket[b1-f80]"][2] == ("conformance.evidence", '{"max_error":0.5}')
        assert "conformance_record" not in text
        assert '"waveform"' not in text


def test_junit_keeps_the_last_word_on_a_case_whose_subject_does_not_close(
    toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy
) -> None:
    run_toy(f"--adapter={spec(body='close_fails = True')}", "--junitxml=out.xml", "-k", "CG204")
    cases = ElementTree.parse(toy_kit.path / "out.xml").iter("testcase")
    found = [(one.get("name"), one.get("value")) for case in cases for one in case.iter("property")]
    assert ("conformance.outcome", "error") in found
    assert len(found) == len(dict(found)) == 3


@pytest.mark.parametrize("arguments", [("-x",), ("--maxfail=1", "-n", "1")])
def test_a_stopped_run_says_so_in_its_report(
    toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy, arguments: tuple[str, ...]
) -> None:
    run_toy(f"--adapter={spec(body=FAILS)}", *ALL, *arguments)
    assert read(toy_kit)["ended"] in ("stopped early", "interrupted")
    require_all(toy_kit.path, "ended before its last case")


@pytest.mark.parametrize("distributed", [(), ("-n", "1")], ids=["alone", "distributed"])
def test_ctrl_c_leaves_a_report_of_what_was_run(
    toy_kit: pytest.Pytester, spec: WriteSpec, distributed: tuple[str, ...]
) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "toy_kit", "-p", "no:cacheprovider", *ALL, *distributed]
    process = subprocess.Popen(
        [*command, f"--adapter={spec(body=SLEEPS)}"],
        cwd=toy_kit.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # as a terminal does it: every process of the group gets the signal
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )
    deadline = time.monotonic() + 60
    while "case toy 80" not in log_of(toy_kit) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 2, said
    assert said.splitlines()[-1] == "audiograph: no verdict — pytest ended with exit code 2"
    document = read(toy_kit)
    assert (document["ended"], document["verdict"]) == ("interrupted", "INCONCLUSIVE")
    assert "toy: INCONCLUSIVE in the " in document["subjects"][0]["sentence"]
    assert "## ✅" not in (toy_kit.path / "r.md").read_text()
    assert [case["case"] for case in document["subjects"][0]["cases"] if case["outcome"] == "PASS"] == ["b1-f8"]
    require_all(toy_kit.path, "ended before its last case: interrupted")
    assert json.loads((toy_kit.path / "r.badge").read_text())["message"].startswith("INCOMPLETE")


def test_a_run_that_pytest_breaks_off_leaves_a_report(
    toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy
) -> None:
    toy_kit.makepyfile(
        boom="def pytest_runtest_teardown(item, nextitem):\n    if 'f80' in item.name:\n        import pytest\n"
        "        pytest.exit('no more', returncode=9)\n"
    )
    result = run_toy("-p", "boom", f"--adapter={spec()}", *ALL)
    assert result.ret == 9
    assert read(toy_kit)["ended"] == "pytest ended with exit code 9"
    require_all(toy_kit.path, "ended before its last case")


def test_another_plugins_exception_costs_no_report(toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy) -> None:
    toy_kit.makepyfile(boom="def pytest_runtest_logfinish(nodeid):\n    raise RuntimeError('boom')\n")
    result = run_toy("-p", "boom", f"--adapter={spec()}", *ALL)
    assert result.ret == 3
    assert read(toy_kit)["ended"] == "pytest ended with exit code 3"
    assert len(read(toy_kit)["subjects"][0]["cases"]) == 1


def test_a_worker_that_dies_is_in_the_report(toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy) -> None:
    body = "class behave:\n    def get(frames):\n        import os\n        frames == 80 and os._exit(3)\n"
    run_toy(f"--adapter={spec(body=body)}", *ALL, "-n", "1")
    outcomes = {case["case"]: case["outcome"] for case in read(toy_kit)["subjects"][0]["cases"]}
    assert outcomes["b1-f80"] == "ERROR"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--conformance-md=no/r.md"], "there is no folder"),
        (["--conformance-html=."], "is a folder"),
        (["--conformance-badge=one", "--conformance-md=one"], "named for the"),
    ],
)
@pytest.mark.parametrize("distributed", [(), ("-n", "2")], ids=["alone", "distributed"])
def test_a_report_that_cannot_be_written_stops_the_run_before_it_begins(
    toy_kit: pytest.Pytester,
    spec: WriteSpec,
    run_toy: RunToy,
    options: list[str],
    words: str,
    distributed: tuple[str, ...],
) -> None:
    result = run_toy(f"--adapter={spec()}", *options, *distributed)
    assert result.ret == 4
    [line] = [line for line in result.errlines if line.startswith("ERROR: ")]
    assert words in line
    assert log_of(toy_kit) == []


def test_without_its_packages_the_page_is_refused_with_the_command_that_brings_them(
    toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy
) -> None:
    toy_kit.makepyfile(
        bare="import importlib.util\nreal = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'matplotlib' else real(name, *rest)\n"
    )
    result = run_toy("-p", "bare", f"--adapter={spec()}", "--conformance-html=r.html")
    assert result.ret == 4
    assert "ERROR: an HTML report needs matplotlib, not installed here: pip install 'audiograph[report]'" in (
        result.stderr.str()
    )
    assert run_toy("-p", "bare", f"--adapter={spec()}", "--conformance-md=r.md").ret == 0


def test_an_option_of_a_report_without_an_adapter_is_refused(toy_kit: pytest.Pytester, run_toy: RunToy) -> None:
    result = run_toy("--conformance-html=r.html")
    assert result.ret == 4
    assert "--conformance-html goes with --adapter=NAME" in result.stderr.str()


def test_a_folder_that_vanishes_during_the_run_costs_its_report_alone(
    toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy
) -> None:
    (toy_kit.path / "out").mkdir()
    body = "class behave:\n    def get(frames):\n        import os\n        frames == 80 and os.rmdir('out')\n"
    result = run_toy(f"--adapter={spec(body=body)}", "--conformance-md=out/r.md", "--conformance-json=r.json")
    assert result.ret == 3
    assert "ERROR: the md report is not written: out/r.md: No such file or directory" in result.outlines
    assert last_line(result).startswith("toy: CONFORMANT")
    assert read(toy_kit)["verdict"] == "CONFORMANT"
