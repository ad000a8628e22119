"""Bad input is one clear line, exit code 4, and nothing half run. In one process and in many."""

from __future__ import annotations

import pytest
from plugin_toys import RunToy, WriteSpec, log_of

DISTRIBUTION = [pytest.param((), id="one-process"), pytest.param(("-n", "2"), id="two-workers")]


def refusal(result: pytest.RunResult) -> str:
    """The one line of an exit 4. Fails when anything else was printed or run."""
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    lines = [line for line in result.errlines + result.outlines if line.strip()]
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.parametrize("distributed", DISTRIBUTION)
def test_an_unknown_name_says_the_nearest_and_the_known(
    toy_kit: pytest.Pytester, run_toy: RunToy, distributed: tuple[str, ...]
) -> None:
    (toy_kit.path / "toy_kit.py").open("a").write(
        "\nimport pathlib\nfrom conformance import registry\n"
        "registry.bundled_folder = lambda: pathlib.Path(__file__).parent / 'shelf'\n"
    )
    for name in ("moss_tts", "mimo_audio"):
        toy_kit.mkpydir("shelf") if not (toy_kit.path / "shelf").exists() else None
        (toy_kit.path / "shelf" / name).mkdir()
        (toy_kit.path / "shelf" / name / "spec.py").write_text("raise SystemExit('listing imports nothing')")
    line = refusal(run_toy("--adapter=moss_ts", *distributed))
    assert line == (
        "ERROR: no adapter is named 'moss_ts'; did you mean moss_tts? Known: mimo_audio, moss_tts. "
        "A file is given by its path, e.g. --adapter=./my_adapter.py"
    )


@pytest.mark.parametrize("distributed", DISTRIBUTION)
def test_a_file_that_does_not_import_shows_its_own_error_and_line(
    toy_kit: pytest.Pytester, run_toy: RunToy, distributed: tuple[str, ...]
) -> None:
    path = toy_kit.path / "mine.py"
    path.write_text("import os\nimport no_such_thing\n")
    line = refusal(run_toy("--adapter=mine.py", *distributed))
    assert line == (
        f"ERROR: adapter file {path} does not import: ModuleNotFoundError: No module named 'no_such_thing' ({path}:2)"
    )


def test_a_syntax_error_is_located(toy_kit: pytest.Pytester, run_toy: RunToy) -> None:
    path = toy_kit.path / "mine.py"
    path.write_text("x = 1\ny = (\n")
    assert refusal(run_toy("--adapter=mine.py")).endswith(f"SyntaxError: '(' was never closed ({path}:2)")


def test_a_missing_file(run_toy: RunToy) -> None:
    assert "no adapter file nowhere/mine.py" in refusal(run_toy("--adapter=nowhere/mine.py"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = 1", "found none"),
        ("from conformance.spec import AdapterSpec", "found none"),
        ("from conformance.spec import AdapterSpec as A\nclass One(A): ...\nclass Two(A): ...", "found One, Two"),
        ("SPEC = 3", "expected a subclass or an instance of AdapterSpec, found int"),
    ],
)
def test_a_file_must_hold_exactly_one_spec(toy_kit: pytest.Pytester, run_toy: RunToy, text: str, found: str) -> None:
    (toy_kit.path / "mine.py").write_text(text)
    assert refusal(run_toy("--adapter=mine.py")).endswith(found)


@pytest.mark.parametrize("distributed", DISTRIBUTION)
def test_a_missing_package_says_the_install_command(
    spec: WriteSpec, run_toy: RunToy, distributed: tuple[str, ...]
) -> None:
    body = """
    from conformance.spec import Requirement
    requires = (Requirement("no_such_package.part", "pip install 'no-such-package==3'"),)
    """
    assert refusal(run_toy(f"--adapter={spec(body=body)}", *distributed)) == (
        "ERROR: adapter 'toy' needs the package 'no_such_package.part', which is not installed; "
        "install it with: pip install 'no-such-package==3'"
    )


@pytest.mark.parametrize("distributed", DISTRIBUTION)
def test_two_adapters_of_one_name_are_both_named(
    toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy, distributed: tuple[str, ...]
) -> None:
    one, two = spec(file="one.py"), spec(file="two.py")
    line = refusal(run_toy(f"--adapter={one}", f"--adapter={two}", *distributed))
    assert line == f"ERROR: two adapters are named 'toy': {toy_kit.path}/one.py and {toy_kit.path}/two.py; rename one"
    assert log_of(toy_kit) == []


def test_one_adapter_named_twice_is_one_adapter(spec: WriteSpec, run_toy: RunToy) -> None:
    token = spec()
    result = run_toy(f"--adapter={token}", f"--adapter={token}")
    assert result.outlines[-1].startswith("toy: CONFORMANT — 3 passed")


def test_a_name_that_would_break_test_ids(spec: WriteSpec, run_toy: RunToy) -> None:
    assert "is named 'a/b'" in refusal(run_toy(f"--adapter={spec('a/b', file='mine.py')}"))


def test_a_declaration_that_makes_no_sense(spec: WriteSpec, run_toy: RunToy) -> None:
    body = """
    def validate(self):
        from conformance.errors import SpecError
        raise SpecError("adapter 'toy': no buckets")
    """
    assert refusal(run_toy(f"--adapter={spec(body=body)}")) == "ERROR: adapter 'toy': no buckets"


def test_an_incomplete_spec_is_caught_by_its_own_validation(toy_kit: pytest.Pytester, run_toy: RunToy) -> None:
    (toy_kit.path / "mine.py").write_text(
        "from conformance.spec import AdapterSpec\nclass Mine(AdapterSpec):\n    name = 'mine'\n"
    )
    assert "Mine declares no `adapter`" in refusal(run_toy("--adapter=mine.py"))


@pytest.mark.parametrize(
    ("body", "more", "message"),
    [
        ("loads_checkpoints = True", (), "--adapter-checkpoint=weights: no such file or folder"),
        ("loads_checkpoints = False", (), "adapter 'toy' loads no checkpoints; leave --adapter-checkpoint out"),
        (
            "loads_checkpoints = True",
            ("other",),
            "--adapter-checkpoint goes with one adapter; 2 were given: toy, other",
        ),
    ],
)
def test_a_checkpoint_that_cannot_be_used(
    spec: WriteSpec, run_toy: RunToy, body: str, more: tuple[str, ...], message: str
) -> None:
    adapters = [f"--adapter={spec(name, body)}" for name in ("toy", *more)]
    assert refusal(run_toy(*adapters, "--adapter-checkpoint=weights")) == f"ERROR: {message}"


@pytest.mark.parametrize("option", ["--adapter", "--adapter-checkpoint", "--graph-device", "--conformance-seed"])
def test_an_authors_option_of_the_same_name(
    toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy, option: str
) -> None:
    toy_kit.makeconftest(f"def pytest_addoption(parser):\n    parser.addoption({option!r})\n")
    line = refusal(run_toy(f"--adapter={spec()}"))
    place = f"{toy_kit.path}/conftest.py:2"
    assert line == f"ERROR: {place} adds the option {option}, which audiograph's plugin owns; rename it"


@pytest.mark.parametrize("distributed", DISTRIBUTION)
def test_an_authors_fixture_of_the_same_name(
    toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy, distributed: tuple[str, ...]
) -> None:
    toy_kit.makeconftest("import pytest\n\n@pytest.fixture\ndef emulated_cuda():\n    return 1\n")
    line = refusal(run_toy(f"--adapter={spec()}", *distributed))
    assert line == (
        f"ERROR: {toy_kit.path}/conftest.py:3 defines the fixture 'emulated_cuda', which is audiograph's; rename it"
    )


def test_an_authors_own_package_named_runner(toy_kit: pytest.Pytester, spec: WriteSpec, run_toy: RunToy) -> None:
    toy_kit.mkpydir("runner")
    line = refusal(run_toy(f"--adapter={spec()}"))
    assert line.startswith(f"ERROR: `import runner` finds {toy_kit.path}/runner/__init__.py, not audiograph's (")


@pytest.mark.parametrize("distributed", DISTRIBUTION)
@pytest.mark.parametrize(
    "head", ["@pytest.fixture\ndef emulated_cuda():", "@pytest.fixture(name='emulated_cuda')\ndef f():"]
)
def test_a_fixture_in_a_subfolders_conftest_is_refused_before_anything_runs(
    toy_kit: pytest.Pytester, run_toy: RunToy, spec: WriteSpec, head: str, distributed: tuple[str, ...]
) -> None:
    token = spec()
    folder = toy_kit.mkdir("theirs")
    (folder / "conftest.py").write_text(f"import pytest\n\n{head}\n    return 1\n")
    (folder / "test_theirs.py").write_text("def test_theirs():\n    pass\n")
    line = refusal(run_toy(f"--adapter={token}", "theirs", *distributed))
    assert "theirs/conftest.py:" in line
    assert "defines the fixture 'emulated_cuda', which is audiograph's; rename it" in line
