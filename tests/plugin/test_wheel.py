"""The wheel in an environment of its own, run from a folder that has its own `adapters/`, `tests/` and conftest."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UV = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path(UV).exists(), reason="uv builds the wheel")]


def run(*command: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON"))}
    return subprocess.run([str(word) for word in command], cwd=cwd, env=clean, capture_output=True, text=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    built = run(UV, "build", "--wheel", "--out-dir", folder, ROOT)
    assert built.returncode == 0, built.stderr
    [path] = folder.glob("audiograph-*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with the wheel; its heavy packages are those of this environment."""
    folder = tmp_path_factory.mktemp("fresh")
    assert run(sys.executable, "-m", "venv", "--without-pip", folder).returncode == 0
    interpreter = folder / "bin" / "python"
    installed = run(UV, "pip", "install", "--no-deps", "--python", interpreter, wheel)
    assert installed.returncode == 0, installed.stderr
    [packages] = (folder / "lib").glob("python*/site-packages")
    borrowed = sysconfig.get_path("purelib")
    # A plain path: .pth files of the borrowed folder, this checkout's editable install among them, are not followed.
    (packages / "borrowed.pth").write_text(f"{borrowed}\n")
    return interpreter


def test_the_wheel_holds_two_packages_and_the_adapters_as_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"conformance", "runner"}
    assert "conformance/_adapters/reference/spec.py" in names
    assert "conformance/suite/test_conformance.py" in names
    assert "conformance/_adapters/reference/snapshots/structure.ambr" in names
    assert "conformance/_adapters/reference/snapshots/emulated/b1-f8.safetensors" in names
    assert {"schema.json", "templates/report.html.j2", "templates/report.css"} <= {
        name.removeprefix("conformance/report/") for name in names
    }
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_it_runs_beside_an_authors_own_adapters_and_tests(python: Path, tmp_path: Path) -> None:
    for name in ("adapters", "tests"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"WHOSE = 'author {name}'\n")
        (tmp_path / name / "test_theirs.py").write_text("raise RuntimeError('collected')\n")
    (tmp_path / "conftest.py").write_text(
        "import adapters, tests\n\n"
        "def pytest_unconfigure():\n"
        "    import sys\n"
        "    assert sys.modules['adapters'].WHOSE == 'author adapters'\n"
        "    assert sys.modules['tests'].WHOSE == 'author tests'\n"
    )
    before = sorted(tmp_path.rglob("*.py"))
    result = run(
        *(python, "-m", "pytest", "--adapter=reference", "--graph-device=emulated", "-p", "no:cacheprovider"),
        "--conformance-html=report.html",
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1].startswith("reference: CONFORMANT — ")
    assert "27 snapshots passed." in result.stdout
    assert str(ROOT) not in result.stdout
    assert "<h1>" in (tmp_path / "report.html").read_text()
    assert sorted(tmp_path.rglob("*.py")) == before


def test_a_third_partys_snapshots_are_kept_beside_its_file_and_not_in_the_package(python: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "adapters" / "reference", tmp_path / "mine", ignore=shutil.ignore_patterns("snapshots"))
    [package] = (python.parents[1] / "lib").glob("python*/site-packages/conformance")
    before = {path: path.stat().st_mtime_ns for path in package.rglob("*") if path.suffix != ".pyc"}
    command = (python, "-m", "pytest", "--adapter=mine/spec.py", "--graph-device=emulated", "-p", "no:cacheprovider")
    result = run(*command, "-k", "CG902 or CG903", "--snapshot-update", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    written = tmp_path / "mine" / "snapshots" / "reference"
    assert len(list((written / "emulated").iterdir())) == 11
    assert (written / "structure.ambr").exists()
    assert {path: path.stat().st_mtime_ns for path in package.rglob("*") if path.suffix != ".pyc"} == before


def test_the_command_lists_the_adapters_that_travelled_with_it(python: Path, tmp_path: Path) -> None:
    result = run(python.with_name("audiograph"), "list", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert any(line.startswith("reference ") and "_adapters" in line for line in result.stdout.splitlines())
    assert run(python.with_name("audiograph"), "--version", cwd=tmp_path).stdout == "audiograph 0.1.0\n"
    assert run(python.with_name("audiograph"), "lst", cwd=tmp_path).returncode == 4
