"""The plugin beside other people's code: their folders, their tests, their settings, their plain pytest runs."""

from __future__ import annotations

import subprocess
import sys

import pytest
from plugin_toys import RunToy, WriteSpec, last_line, log_of

CONFORMANT = "toy: CONFORMANT — 3 passed, 0 failed; emulated CUDA, torch 2.13.0, seed 0"


def modules_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )


def test_importing_the_plugin_imports_neither_torch_nor_numpy_nor_the_kit() -> None:
    modules = modules_after("import conformance.plugin")
    assert not {"torch", "numpy", "runner"} & modules
    assert {name for name in modules if name.startswith("conformance")} == {"conformance", "conformance.plugin"}


def test_a_plain_pytest_run_loads_nothing_of_the_kit(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\n"
        "def test_it():\n"
        "    kit = {name for name in sys.modules if name.split('.')[0] == 'conformance'}\n"
        "    assert kit == {'conformance', 'conformance.plugin'}\n"
        "    assert 'torch' not in sys.modules\n"
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    assert "audiograph:" not in result.stdout.str()
    assert "CONFORMANT" not in result.stdout.str()


def test_the_suite_is_not_collected_without_an_adapter(pytester: pytest.Pytester) -> None:
    from conformance.plugin import SUITE

    result = pytester.runpytest_subprocess(str(SUITE))
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


def author_project(pytester: pytest.Pytester) -> None:
    """A project whose every part would break a conformance run that touched it."""
    pytester.makepyfile(test_top="raise RuntimeError('collected')")
    pytester.makeini(
        "[pytest]\ntestpaths = tests\npython_functions = check_*\npython_files = *\nusefixtures = gone\naddopts = -q\n"
    )
    for name in ("tests", "adapters"):
        folder = pytester.mkpydir(name)
        (folder / "test_theirs.py").write_text("def check_theirs():\n    raise RuntimeError('ran')\n")
        (folder / "spec.py").write_text("raise RuntimeError('loaded')\n")
    pytester.makeconftest(
        "import pytest\n"
        "@pytest.fixture(autouse=True)\n"
        "def refuse():\n"
        "    pytest.skip('no GPU here')\n"
        "@pytest.fixture\n"
        "def suite_case():\n"
        "    raise RuntimeError('overridden')\n"
        "@pytest.fixture\n"
        "def kit():\n"
        "    raise RuntimeError('overridden')\n"
    )


@pytest.mark.parametrize("distributed", [(), ("-n", "2")])
def test_an_authors_project_is_neither_collected_nor_in_the_way(
    toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy, distributed: tuple[str, ...]
) -> None:
    token = spec()
    author_project(toy_kit)
    result = run_toy(f"--adapter={token}", *distributed)
    assert last_line(result) == CONFORMANT
    assert result.ret == 0


def test_paths_that_are_named_are_collected_too_and_run_outside_the_device(
    toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy
) -> None:
    toy_kit.makepyfile(test_mine="import toy_kit\n\ndef test_mine():\n    toy_kit.note('mine')\n")
    result = run_toy("test_mine.py", f"--adapter={spec()}")
    result.assert_outcomes(passed=4)
    assert log_of(toy_kit)[:2] == ["mine", "open device auto"]
    assert last_line(result) == CONFORMANT


def test_an_authors_failing_test_keeps_its_exit_code(
    toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy
) -> None:
    toy_kit.makepyfile(test_mine="def test_mine():\n    assert 0\n")
    result = run_toy("test_mine.py", f"--adapter={spec()}")
    assert last_line(result) == CONFORMANT
    assert result.ret == 1


def test_a_skip_from_an_authors_hook_is_never_a_pass(
    toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy
) -> None:
    toy_kit.makeconftest(
        "import pytest\n"
        "def pytest_collection_modifyitems(items):\n"
        "    items[0].add_marker(pytest.mark.skip('slow'))\n"
        "    items[1].add_marker(pytest.mark.xfail(reason='known', strict=False))\n"
    )
    token = spec(body='behave = {80: "fail"}')
    result = run_toy(f"--adapter={token}")
    assert last_line(result).startswith("toy: NOT CONFORMANT — 1 passed, 1 failed, 1 blocked;")


def test_the_plugin_named_a_second_time_is_still_one_plugin(spec: WriteSpec, run_toy: RunToy) -> None:
    result = run_toy("-p", "conformance.plugin", f"--adapter={spec()}")
    assert last_line(result) == CONFORMANT


def test_a_run_from_a_subfolder_keeps_the_ids(
    toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec()
    toy_kit.makeini("[pytest]\n")
    below = toy_kit.mkdir("below")
    monkeypatch.chdir(below)
    result = run_toy("--adapter=../toy_adapter.py", "--junitxml=out.xml")
    assert last_line(result) == CONFORMANT
    assert 'classname="conformance.toy" name="CG201-exact-bucket[b1-f8]"' in (below / "out.xml").read_text()
