"""docs/configuration.md names every knob of the installed vllm-omni that switches graphs."""

import importlib.util
import re
from dataclasses import fields
from pathlib import Path

import pytest

from runner import GraphConfig

TABLE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"
READ = re.compile(
    r"""(?:getattr\([^,()]+,|\.get\(|environ\.get\(|getenv\(|_get_int_list_config\()\s*["']([A-Za-z0-9_]+)["']"""
)
ABOUT_GRAPHS = re.compile(r"graph|GRAPH|s2mel_(dit|vocoder)_torch_compile|s2mel_vocoder_(capture|compile)")
INTERNAL = re.compile(
    r"^_|^max_graphs$|^use_graph$|no_cg$|_mode$|^supports_|^enable_cudagraph$|_graph_safe$|^get_|^cudagraph_stats$|^mtp_graph"
)
MARKED = re.compile(r"`([A-Za-z0-9_]+)`")


def documented():
    return set(MARKED.findall(TABLE.read_text()))


def knobs():
    """Names that vllm-omni's models read from a config, an `extra` mapping or the environment, from their text."""
    spec = importlib.util.find_spec("vllm_omni")
    if spec is None or spec.origin is None:
        pytest.skip("needs the extra `vllm`")
    root = Path(spec.origin).parent
    files = [*root.glob("model_executor/models/**/*.py"), *root.glob("transformers_utils/**/*.py")]
    found = {name for file in files for name in READ.findall(file.read_text()) if ABOUT_GRAPHS.search(name)}
    runtime = (root / "model_executor/models/voxcpm2/runtime_config.py").read_text()
    found |= set(re.findall(r"^    (\w*graph\w*): (?:bool|int)", runtime, re.MULTILINE))
    inventory = (root / "config/environment_variable_inventory.py").read_text()
    found |= set(re.findall(r'"(\w*CUDA_?GRAPH\w*)"', inventory))
    return {name for name in found if not INTERNAL.search(name)}


@pytest.mark.vllm
def test_every_knob_of_the_installed_package_is_in_the_table():
    found = knobs()
    assert len(found) >= 20, f"the search found too little: {sorted(found)}"
    assert found - documented() == set()


@pytest.mark.vllm
def test_every_environment_variable_that_the_table_names_is_read():
    named = {
        name for name in documented() if name.isupper() and "GRAPH" in name and not name.startswith("MIMO_CUDAGRAPH")
    }
    assert named - knobs() == set()


def test_every_field_of_the_configuration_is_documented():
    assert {field.name for field in fields(GraphConfig)} - documented() == set()
