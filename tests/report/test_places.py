"""Paths in messages and reports: told from a folder that a reader elsewhere knows."""

from __future__ import annotations

import json
import sysconfig
import threading
from pathlib import Path

import pytest
import torch

import conformance
from conformance.places import near, told, told_throughout
from tests.inner_run import run_suite

SITE = Path(torch.__file__).parent.parent


def test_each_kind_of_path_begins_where_its_reader_knows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    kit = Path(conformance.__file__)
    for path, shown in {
        torch.__file__: "torch/__init__.py",
        str(SITE / "vllm_omni" / "model.py"): "vllm_omni/model.py",
        str(kit): "conformance/__init__.py",
        threading.__file__: f"{Path(sysconfig.get_path('stdlib')).name}/threading.py",
        str(tmp_path / "mine" / "spec.py"): "mine/spec.py",
        str(tmp_path / "home" / "spec.py"): "~/spec.py",
        "/elsewhere/spec.py": "/elsewhere/spec.py",
    }.items():
        assert told(f"at {path}:3 in f: ({path})") == f"at {shown}:3 in f: ({shown})"
    monkeypatch.chdir("/")
    assert told(str(tmp_path / "home" / "spec.py")) == "~/spec.py"


def test_only_what_begins_with_a_folder_is_shortened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text in (f"/backup{tmp_path}/x", f"https://example.org{tmp_path}/x", str(tmp_path), f"{tmp_path}2/x", "a/b"):
        assert told(text) == text


def test_evidence_is_told_throughout_and_its_figures_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    place = f"{tmp_path}/a.py"
    assert told_throughout({"at": [place, (place, 1.5)], place: None, "n": 3}) == {
        "at": ["a.py", ("a.py", 1.5)],
        "a.py": None,
        "n": 3,
    }


def test_a_command_stays_one_that_can_be_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert near(tmp_path / "weights") == Path("weights")
    assert near(Path("/elsewhere/weights")) == Path("/elsewhere/weights")


HOST_COPY = """
import torch
from conformance.registry import spec_of

_reference = type(spec_of("reference"))

class Mine(_reference):
    name = "mine"

    def build(self, device, checkpoint):
        made = super().build(device, checkpoint)
        forward = made.module.forward

        def copies(codes):
            return forward(codes) + torch.tensor([0.5]).to(codes.device)

        made.module.forward = copies
        return made
"""


def test_no_path_of_this_machine_is_in_any_report(pytester: pytest.Pytester) -> None:
    spec = pytester.path / "mine.py"
    spec.write_text(HOST_COPY)
    files = {kind: f"--conformance-{kind}=report.{kind}" for kind in ("json", "html", "md")}
    run_suite(pytester, "--adapter=mine.py", "-k", "CG101 or CG103", "--junitxml=junit.xml", *files.values())
    cases = json.loads((pytester.path / "report.json").read_text())["subjects"][0]["cases"]
    assert "at mine.py:15 in copies" in " ".join(case.get("message", "") for case in cases)
    for name in (*(f"report.{kind}" for kind in files), "junit.xml"):
        text = (pytester.path / name).read_text()
        assert str(pytester.path) not in text
        assert str(SITE) not in text
