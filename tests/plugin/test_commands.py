"""The `audiograph` command: same catalogue, same verdicts, same exit codes as under pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conformance.catalogue import load_catalogue
from conformance.cli import main
from conformance.handbook import markdown

ROOT = Path(__file__).resolve().parents[2]


def test_checks_lists_every_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checks"]) == 0
    listed = [line[:5] for line in capsys.readouterr().out.splitlines()]
    assert listed == [check.code for check in load_catalogue()]


def test_explain_prints_the_four_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "cg203"]) == 0
    text = capsys.readouterr().out
    for part in ("CG203-padded-bucket: ", "Contract:", "Why it matters:", "How it is checked:", "If it fails:"):
        assert part in text


def test_an_unknown_code_is_one_line_and_exit_4(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "CG2O3"]) == 4
    assert "ERROR: no check 'CG2O3'; did you mean" in capsys.readouterr().err


def test_the_documentation_of_the_checks_is_up_to_date() -> None:
    assert (ROOT / "docs" / "checks.md").read_text(encoding="utf-8") == markdown(load_catalogue()), "run `make docs`"


def test_every_check_documents_its_four_parts_and_a_public_case() -> None:
    for check in load_catalogue():
        for part in ("Contract:", "Why it matters:", "How it is checked:", "If it fails:", "https://"):
            assert part in check.documentation, f"{check.code} lacks {part}"


def test_plan_says_what_runs_and_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--adapter=tests.mutants.base:ReferenceSpec"]) == 0
    text = capsys.readouterr().out
    assert "CG201-exact-bucket" in text
    assert "3 cases" in text


def test_run_gives_the_verdict_and_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--adapter=tests.mutants.rfc:trims_nominally"]) == 1
    text = capsys.readouterr().out
    assert "FAILED TrimsNominally/CG203-padded-bucket[b1-f1-in-b1-f4]" in text
    assert text.splitlines()[-1].startswith("TrimsNominally: NOT CONFORMANT")


def test_run_says_its_verdict_and_nothing_of_what_the_checks_provoke() -> None:
    command = [sys.executable, "-m", "conformance.cli", "run", "--adapter=reference", "--graph-device=emulated"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.startswith("reference: CONFORMANT — ")
    assert (run.stdout.count("\n"), run.stderr) == (1, "")


def test_ctrl_c_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("conformance.unattended.run_unattended", interrupted)
    assert main(["run", "--adapter=reference"]) == 130
    assert capsys.readouterr().err == "interrupted: no verdict\n"


def test_a_new_adapter_passes_once_two_places_are_filled_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "my_decoder", "--into", str(tmp_path)]) == 0
    folder = tmp_path / "my_decoder"
    assert main(["run", f"--adapter={folder / 'spec.py'}"]) == 1
    assert "NotImplementedError" in capsys.readouterr().out

    for name in [name for name in sys.modules if name.startswith("_audiograph_adapters.my_decoder")]:
        del sys.modules[name]  # a new process would load the files anew
    adapter = (folder / "adapter.py").read_text()
    line = 'raise NotImplementedError("adapter.py: call your module in forward")'
    (folder / "adapter.py").write_text(adapter.replace(line, "return self.module(codes)"))
    spec = (folder / "spec.py").read_text()
    line = 'raise NotImplementedError("spec.py: build your module")'
    made = (
        "from tests.mutants.base import RaggedCodec, _reference\n"
        "        codec = RaggedCodec(_reference().build(device, None).module)\n"
        "        return MyDecoderAdapter(codec, codec.n_vq)"
    )
    (folder / "spec.py").write_text(spec.replace(line, made))
    assert main(["run", f"--adapter={folder / 'spec.py'}"]) == 0
    assert "my_decoder: CONFORMANT" in capsys.readouterr().out


def test_a_second_adapter_of_a_name_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "mine", "--into", str(tmp_path)]) == 0
    assert main(["new", "mine", "--into", str(tmp_path)]) == 4
    assert main(["new", "not-a-name", "--into", str(tmp_path)]) == 4
    assert "exists already" in capsys.readouterr().err


def test_expect_writes_entries_that_ask_for_a_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spec.py").write_text(
        "from tests.mutants.rfc import trims_nominally\n\n\nclass Known(trims_nominally):\n    name = 'known'\n"
    )
    assert main(["expect", f"--adapter={tmp_path / 'spec.py'}"]) == 0
    assert 'code = "CG203"' in (tmp_path / "expectations.toml").read_text()
    assert main(["run", f"--adapter={tmp_path / 'spec.py'}"]) == 4
    assert "still TODO" in capsys.readouterr().err
