"""The CI script and the GitHub action that calls it: what they name exists, and exit codes come through."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "ci" / "conformance.sh"
ACTION = ROOT / ".github" / "actions" / "conformance" / "action.yml"
FAKE = """#!/usr/bin/env bash
echo "$@" >> "$CALLS"
case "$1 $2" in
"-m pytest")
    for word in "$@"; do
        case "$word" in --conformance-json=* | --conformance-md=*) echo written > "${word#*=}" ;; esac
    done
    exit "$PYTEST_EXIT" ;;
"-m conformance.cli") exit "$COMPARE_EXIT" ;;
esac
"""


def action() -> dict[str, Any]:
    found = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def run(tmp_path: Path, *arguments: str, exits: tuple[int, int] = (0, 0)) -> tuple[int, str]:
    """The script with an interpreter that only writes down what it is asked. Exit code, and the calls."""
    fake = tmp_path / "python"
    fake.write_text(FAKE)
    fake.chmod(0o755)
    (tmp_path / "calls").write_text("")
    environment = {
        **os.environ,
        "PYTHON": str(fake),
        "CALLS": str(tmp_path / "calls"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "PYTEST_EXIT": str(exits[0]),
        "COMPARE_EXIT": str(exits[1]),
    }
    done = subprocess.run(
        ["bash", str(SCRIPT), *arguments], cwd=tmp_path, env=environment, capture_output=True, check=False
    )
    return done.returncode, (tmp_path / "calls").read_text()


def test_the_action_runs_a_script_that_exists_and_is_executable() -> None:
    steps = action()["runs"]["steps"]
    (found,) = {path for step in steps for path in re.findall(r"\$GITHUB_ACTION_PATH/([^\"]+)", step.get("run", ""))}
    assert (ACTION.parent / found).resolve() == SCRIPT
    assert os.access(SCRIPT, os.X_OK)


def test_every_option_that_the_action_gives_is_the_scripts() -> None:
    script = SCRIPT.read_text(encoding="utf-8")
    for step in action()["runs"]["steps"]:
        if "conformance.sh" in step.get("run", ""):
            options = set(re.findall(r"--[a-z-]+", step["run"]))
            assert options >= {"--adapter", "--graph-device", "--base"}
            assert [option for option in options if not re.search(rf"^    .*{option}[ )]", script, re.M)] == []


def test_every_input_that_the_action_reads_is_declared_and_each_is_read() -> None:
    text = ACTION.read_text(encoding="utf-8")
    declared = set(action()["inputs"])
    assert set(re.findall(r"inputs\.([a-z-]+)", text)) == declared
    assert {"adapter", "graph-device", "base-report"} <= declared


def test_no_input_is_pasted_into_a_command() -> None:
    assert [step["name"] for step in action()["runs"]["steps"] if "${{" in step.get("run", "")] == []


def test_every_option_that_the_script_gives_is_the_plugins_or_the_commands() -> None:
    from conformance.plugin import OPTIONS

    written = re.sub(r"^#.*$", "", SCRIPT.read_text(encoding="utf-8"), flags=re.M)
    given = set(re.findall(r"--(?:conformance|adapter|graph)-?[a-z-]*(?==)", written))
    assert given - set(OPTIONS) == set()
    assert "--conformance-json" in given


@pytest.mark.parametrize("code", [0, 1, 4, 6])
def test_the_exit_code_of_the_run_is_the_scripts(tmp_path: Path, code: int) -> None:
    assert run(tmp_path, "--adapter", "mine", exits=(code, 0))[0] == code


def test_a_base_that_is_no_file_is_refused_before_the_run(tmp_path: Path) -> None:
    assert run(tmp_path, "--adapter", "mine", "--base", "none.json") == (4, "")


@pytest.mark.parametrize(
    ("exits", "code", "compared"),
    [
        ((0, 0), 0, True),
        ((1, 0), 0, True),
        ((1, 1), 1, True),
        ((0, 4), 4, True),
        ((4, 0), 4, False),
        ((6, 0), 6, False),
    ],
)
def test_a_base_decides_where_there_is_a_verdict(
    tmp_path: Path, exits: tuple[int, int], code: int, compared: bool
) -> None:
    found, calls = run(tmp_path, "--adapter", "mine", "--base", "mine@vllm_omni", exits=exits)
    assert found == code
    assert ("conformance.cli compare mine@vllm_omni conformance-reports/conformance.json" in calls) == compared


def test_what_is_given_reaches_pytest_and_the_summary(tmp_path: Path) -> None:
    _, calls = run(
        tmp_path, *["--adapter", "mine", "--graph-device", "emulated", "--seed", "7", "--allow-known", "--", "-n", "2"]
    )
    wanted = "--adapter=mine --graph-device=emulated --conformance-seed=7 --conformance-allow-known"
    assert f"-m pytest {wanted}" in calls
    assert calls.splitlines()[-1].endswith(" -n 2")
    assert (tmp_path / "summary").read_text() == "written\n"


@pytest.mark.parametrize("arguments", [(), ("--adapter",), ("--adapter", "mine", "--what", "x"), ("mine",)])
def test_bad_arguments_are_exit_4_and_run_nothing(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert run(tmp_path, *arguments) == (4, "")


def test_ci_calls_the_same_script() -> None:
    assert "ci/conformance.sh --adapter reference" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
