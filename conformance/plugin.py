"""The pytest plugin's door: the options, and the fixture that authors may use.

pytest loads it in every run of the environment, so it imports neither torch nor numpy, nor the kit itself. Only with
`--adapter` does it register :class:`conformance.run.ConformanceRun`, which holds every other hook.
"""

from __future__ import annotations

import argparse
import traceback
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

REPORTS = {
    "json": "a schema-versioned JSON report, for `audiograph compare`, `audiograph report` and CI",
    "md": "a summary in Markdown, for GitHub's $GITHUB_STEP_SUMMARY",
    "html": "one self-contained page with pictures of the failures (needs the extra `report`)",
    "badge": "the JSON of a shields.io endpoint badge",
}
OPTIONS = (
    "--adapter",
    "--adapter-checkpoint",
    "--graph-device",
    "--graph-config",
    "--conformance-seed",
    "--conformance-allow-known",
    *(f"--conformance-{name}" for name in REPORTS),
)
SUITE = Path(__file__).resolve().parent / "suite" / "test_conformance.py"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance", "inner CUDA graph conformance (audiograph)")
    group.addoption(
        "--adapter",
        dest="conformance_adapters",
        action="append",
        default=[],
        metavar="ADAPTER",
        help="test this adapter: a NAME, `all`, `all@vllm_omni`, path/to/file.py or pkg.module:ATTR; repeatable",
    )
    group.addoption(
        "--adapter-checkpoint",
        dest="conformance_checkpoint",
        default=None,
        metavar="PATH",
        help="load the adapter's real weights from PATH instead of tiny random ones",
    )
    group.addoption(
        "--graph-device",
        dest="conformance_device",
        choices=("auto", "cuda", "emulated"),
        default="auto",
        help="where graphs are captured; auto takes a GPU where there is one (default: auto)",
    )
    group.addoption(
        "--graph-config",
        dest="conformance_graph_config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a field of the runner's GraphConfig, e.g. lazy=true or compile=true; repeatable",
    )
    group.addoption(
        "--conformance-seed",
        dest="conformance_seed",
        type=int,
        default=0,
        metavar="N",
        help="seed of weights and inputs (default: 0)",
    )
    group.addoption(
        "--conformance-allow-known",
        dest="conformance_allow_known",
        action="store_true",
        help="exit 0 when every failure is declared in the adapter's expectations.toml",
    )
    for name, what in REPORTS.items():
        group.addoption(f"--conformance-{name}", default=None, metavar="FILE", help=f"write the run as {what}")


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests() -> Generator[None]:
    try:
        return (yield)
    except (ValueError, argparse.ArgumentError) as error:
        taken = sorted(name for name in OPTIONS if f"{name}'" in str(error) or str(error).endswith(name))
        if not taken:
            raise
        places = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name == "pytest_addoption"]
        place = f"{places[-1].filename}:{places[-1].lineno}" if places else "a conftest.py"
        raise pytest.UsageError(
            f"{place} adds the option {taken[0]}, which audiograph's plugin owns; rename it"
        ) from None


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("conformance_checkpoint") and not config.getoption("conformance_adapters"):
        raise pytest.UsageError("--adapter-checkpoint goes with one --adapter=NAME, and none was given")
    for name in REPORTS:
        if config.getoption(f"--conformance-{name}") is not None and not config.getoption("conformance_adapters"):
            raise pytest.UsageError(f"--conformance-{name} goes with --adapter=NAME, and none was given")
    if config.getoption("conformance_adapters") and not config.getoption("help"):
        from conformance.run import ConformanceRun

        config.pluginmanager.register(ConformanceRun.prepare(config), "conformance.run")


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if module_path != SUITE:
        return None
    from conformance.collection import SuiteModule

    return SuiteModule.from_parent(parent, path=module_path)


@pytest.fixture
def emulated_cuda() -> Iterator[None]:
    """CUDA's graph API on a machine without a GPU, for one test. See :func:`conformance.emulation.emulated_cuda`."""
    from conformance.emulation import emulated_cuda

    with emulated_cuda():
        yield
