"""The doors to an adapter."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from conformance import registry
from conformance.cli import describe_known
from conformance.errors import AdapterLoadError, AdapterNotFound
from conformance.spec import AdapterSpec

SPEC = """
from conformance.spec import AdapterSpec
from .adapter import WORD

class Shelved(AdapterSpec):
    '''A toy on the shelf.

    With more to say.
    '''
    name = {name!r}
    word = WORD
    def validate(self):
        pass
"""


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "adapters"
    for name in ("alpha", "beta"):
        (folder / name).mkdir(parents=True)
        (folder / name / "spec.py").write_text(SPEC.format(name=name))
        (folder / name / "adapter.py").write_text(f"WORD = 'word of {name}'\n")
    monkeypatch.setattr(registry, "bundled_folder", lambda: folder)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [])
    return folder


class Installed(AdapterSpec):
    name = "gamma"

    def validate(self) -> None:
        pass


def entry_point(name: str) -> importlib.metadata.EntryPoint:
    return importlib.metadata.EntryPoint(name, f"{__name__}:Installed", registry.ENTRY_POINTS)


def test_two_specs_of_one_file_name_load_each_its_own_neighbour(shelf: Path) -> None:
    alpha, beta = registry.load_adapters(["alpha", "beta"])
    assert (alpha.spec.word, beta.spec.word) == ("word of alpha", "word of beta")  # type: ignore[attr-defined]


def test_loading_leaves_no_module_and_no_path_behind_that_others_could_meet(shelf: Path) -> None:
    path, modules = list(sys.path), set(sys.modules)
    registry.load_adapters(["all", str(shelf / "alpha")])
    assert sys.path == path
    new = {name.partition(".")[0] for name in set(sys.modules) - modules}
    assert new <= {"_audiograph_adapters"}


def test_listing_imports_nothing(shelf: Path) -> None:
    (shelf / "alpha" / "spec.py").write_text("raise SystemExit")
    assert [known.name for known in registry.known_adapters()] == ["alpha", "beta"]


def test_every_token_for_one_file_is_one_adapter(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shelf)
    tokens = ["alpha", "alpha/spec.py", "./alpha", str(shelf / "alpha" / "spec.py")]
    [adapter] = registry.load_adapters(tokens)
    assert adapter.token == "alpha"
    [adapter] = registry.load_adapters(tokens[1:])
    assert adapter.token == "alpha/spec.py"


def test_all_means_every_name_and_each_token_repeats_one(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [entry_point("gamma")])
    assert [adapter.token for adapter in registry.load_adapters(["all"])] == ["alpha", "beta", "gamma"]


def test_all_of_a_package_means_its_wrappers_and_all_leaves_them_out(shelf: Path) -> None:
    (shelf / "alpha@omni").mkdir()
    (shelf / "alpha@omni" / "spec.py").write_text(SPEC.format(name="alpha@omni"))
    (shelf / "alpha@omni" / "adapter.py").write_text("WORD = 'word of the wrapper'\n")
    assert [adapter.token for adapter in registry.load_adapters(["all"])] == ["alpha", "beta"]
    assert [adapter.token for adapter in registry.load_adapters(["all@omni"])] == ["alpha@omni"]
    with pytest.raises(AdapterNotFound, match="all@omny"):
        registry.load_adapters(["all@omny"])


def test_a_module_attribute_may_be_a_class_or_an_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "READY", Installed(), raising=False)
    for attribute in ("Installed", "READY"):
        [adapter] = registry.load_adapters([f"{__name__}:{attribute}"])
        assert adapter.spec.name == "gamma"


def test_an_installed_adapter_with_a_bundled_name_is_refused_with_both_places(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [entry_point("alpha")])
    with pytest.raises(AdapterLoadError) as refused:
        registry.load_adapters(["alpha"])
    assert str(shelf / "alpha" / "spec.py") in str(refused.value)
    assert f"entry point alpha = {__name__}:Installed" in str(refused.value)


def test_a_name_on_the_shelf_that_the_spec_does_not_bear(shelf: Path) -> None:
    (shelf / "alpha").rename(shelf / "other")
    with pytest.raises(AdapterLoadError, match="its spec is named 'alpha'; expected 'other'"):
        registry.load_adapters(["other"])


def test_the_error_is_placed_in_the_authors_file_and_not_where_python_raised_it(shelf: Path) -> None:
    (shelf / "alpha" / "adapter.py").write_text("import json\nWORD = json.loads('{')\n")
    with pytest.raises(AdapterLoadError, match=rf"JSONDecodeError: .*\({shelf / 'alpha' / 'adapter.py'}:2\)"):
        registry.load_adapters(["alpha"])


def test_the_list_says_name_description_and_origin_and_survives_a_broken_one(shelf: Path) -> None:
    (shelf / "beta" / "adapter.py").write_text("WORD = nothing\n")
    first, second = describe_known(registry.known_adapters())
    assert first.split("  ")[:2] == ["alpha", "A toy on the shelf."]
    assert first.endswith(str(shelf / "alpha" / "spec.py"))
    assert second.startswith("beta   (does not load: ")
    assert "NameError: name 'nothing' is not defined" in second
