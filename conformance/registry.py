"""The doors to an adapter: a bundled name, an installed entry point, a file, or `package.module:ATTRIBUTE`.

Every file is loaded by path, as a submodule of a synthetic package that stands for its folder. So `from .adapter
import X` works inside it, nothing is put on `sys.path`, and no top-level module `adapters` or `tests` is left behind
that could shadow another package's.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.metadata
import importlib.util
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from conformance.errors import AdapterLoadError, AdapterNotFound, MissingPackage, SpecError
from conformance.spec import AdapterSpec

ALL = "all"  # adapters on the reference runner; `all@vllm_omni`: the wrappers that vllm_omni ships
ENTRY_POINTS = "audiograph.adapters"
_NAMESPACE = "_audiograph_adapters"
_NAME = re.compile(r"[\w.@-]+")


@dataclass(frozen=True)
class KnownAdapter:
    """An adapter that can be asked for by name. Nothing of it is imported yet."""

    name: str
    source: Path | importlib.metadata.EntryPoint

    @property
    def origin(self) -> str:
        if isinstance(self.source, Path):
            return str(self.source)
        owner = f" of {self.source.dist.name}" if self.source.dist else ""
        return f"entry point {self.source.name} = {self.source.value}{owner}"

    def load(self) -> AdapterSpec:
        """The adapter's spec, imported now. Raises :class:`AdapterLoadError`."""
        if isinstance(self.source, Path):
            spec = load_file(self.source)
        else:
            try:
                found = self.source.load()
            except Exception as error:
                raise AdapterLoadError(f"{self.origin} does not import: {_what(error)}") from error
            spec = _as_spec(found, self.origin)
        declared = getattr(spec, "name", None)
        if declared != self.name:
            raise AdapterLoadError(f"{self.origin}: its spec is named {declared!r}; expected {self.name!r}")
        return spec


@dataclass(frozen=True)
class LoadedAdapter:
    """An adapter ready to be tested. `token` is what the user can write after `--adapter=` to mean it."""

    token: str
    spec: AdapterSpec
    origin: str


def bundled_folder() -> Path:
    """The folder of the adapters that come with the kit: inside the package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "_adapters"
    return installed if installed.is_dir() else package.parent / "adapters"


def known_adapters() -> tuple[KnownAdapter, ...]:
    """Every adapter that has a name here, by name: bundled ones and those of installed packages. Imports none."""
    bundled = [KnownAdapter(path.parent.name, path) for path in bundled_folder().glob("*/spec.py")]
    installed = [KnownAdapter(point.name, point) for point in importlib.metadata.entry_points(group=ENTRY_POINTS)]
    return tuple(sorted(bundled + installed, key=lambda known: (known.name, known.origin)))


def load_adapters(tokens: Iterable[str]) -> tuple[LoadedAdapter, ...]:
    """The adapters that the tokens mean, each loaded, found complete and with its packages installed.

    Raises a :class:`~conformance.errors.ConformanceError` that names the culprit. Nothing is built.
    """
    loaded: dict[str, LoadedAdapter] = {}
    for adapter in _expand(tokens):
        name = getattr(adapter.spec, "name", None)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise SpecError(
                f'the spec in {adapter.origin} is named {name!r}; a spec needs `name = "..."`, '
                "of letters, digits and _ . @ -"
            )
        other = loaded.setdefault(name, adapter)
        if other.origin != adapter.origin:
            raise AdapterLoadError(f"two adapters are named {name!r}: {other.origin} and {adapter.origin}; rename one")
    for adapter in loaded.values():
        _validate(adapter)
        _require_packages(adapter)
    return tuple(loaded.values())


def spec_of(name: str) -> AdapterSpec:
    """The spec of a known adapter, for another spec that builds on it. Raises as :func:`load_adapters` does."""
    return _by_name(name).spec


def load_file(path: Path) -> AdapterSpec:
    """The one spec that a Python file holds: `SPEC = ...`, or the only subclass of AdapterSpec that it defines."""
    path = path.resolve()
    try:
        module = _import_file(path)
    except (Exception, SystemExit) as error:
        raise AdapterLoadError(f"adapter file {path} does not import: {_what(error, path.parent)}") from error
    if hasattr(module, "SPEC"):
        return _as_spec(module.SPEC, f"{path}: SPEC")
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, AdapterSpec) and value.__module__ == module.__name__
    ]
    if len(classes) != 1:
        found = ", ".join(sorted(cls.__name__ for cls in classes)) or "none"
        raise AdapterLoadError(
            f"adapter file {path}: expected `SPEC = ...` or exactly one subclass of conformance.spec.AdapterSpec, "
            f"found {found}"
        )
    return _as_spec(classes[0], str(path))


def _expand(tokens: Iterable[str]) -> Iterator[LoadedAdapter]:
    for token in tokens:
        everything, _, package = token.partition("@")
        if everything == ALL:
            names = list(dict.fromkeys(known.name for known in known_adapters()))
            chosen = [name for name in names if name.partition("@")[2] == package]
            if not chosen:
                raise AdapterNotFound(_unknown(token, names))
            yield from map(_by_name, chosen)
        elif ":" in token and not Path(token).exists():
            yield LoadedAdapter(token, _by_attribute(token), token)
        elif token.endswith(".py") or "/" in token or "\\" in token or token in (".", ".."):
            path = Path(token) / "spec.py" if Path(token).is_dir() else Path(token)
            if not path.is_file():
                raise AdapterNotFound(f"no adapter file {path} (looked in {Path.cwd()})")
            yield LoadedAdapter(token, load_file(path), str(path.resolve()))
        else:
            yield _by_name(token)


def _by_name(name: str) -> LoadedAdapter:
    known = known_adapters()
    matches = [adapter for adapter in known if adapter.name == name]
    if len(matches) > 1:
        places = " and ".join(adapter.origin for adapter in matches)
        raise AdapterLoadError(f"two adapters are named {name!r}: {places}; give the path of the one you mean")
    if not matches:
        raise AdapterNotFound(_unknown(name, [adapter.name for adapter in known]))
    return LoadedAdapter(name, matches[0].load(), matches[0].origin)


def _unknown(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    return (
        f"no adapter is named {name!r}{hint} Known: {', '.join(dict.fromkeys(names)) or 'none'}. "
        "A file is given by its path, e.g. --adapter=./my_adapter.py"
    )


def _by_attribute(token: str) -> AdapterSpec:
    module_name, _, attribute = token.partition(":")
    if not module_name or not attribute:
        raise AdapterNotFound(f"adapter {token!r}: expected package.module:ATTRIBUTE")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise AdapterLoadError(
            f"adapter {token}: no module {error.name!r}; expected package.module:ATTRIBUTE that Python can import (set "
            "PYTHONPATH, or run `python -m pytest`, to add the current folder)"
        ) from error
    except (Exception, SystemExit) as error:
        raise AdapterLoadError(f"adapter {token}: {module_name} does not import: {_what(error)}") from error
    if not hasattr(module, attribute):
        raise AdapterNotFound(f"adapter {token}: module {module_name} has no attribute {attribute!r}")
    return _as_spec(getattr(module, attribute), token)


def _as_spec(found: object, where: str) -> AdapterSpec:
    if isinstance(found, type) and issubclass(found, AdapterSpec):
        try:
            found = found()
        except Exception as error:
            raise AdapterLoadError(f"{where}: making the spec failed: {_what(error)}") from error
    if not isinstance(found, AdapterSpec):
        kind = found.__name__ if isinstance(found, type) else type(found).__name__
        raise AdapterLoadError(f"{where}: expected a subclass or an instance of AdapterSpec, found {kind}")
    return found


def _import_file(path: Path) -> ModuleType:
    name = f"{_package_of(path.parent)}.{re.sub(r'[^0-9A-Za-z_]', '_', path.stem)}"
    if name in sys.modules:
        return sys.modules[name]
    return _execute(name, path)


def _package_of(folder: Path) -> str:
    """The synthetic package for `folder`; its name cannot meet another folder's or a real package's."""
    if _NAMESPACE not in sys.modules:
        namespace = ModuleType(_NAMESPACE)
        namespace.__path__ = []
        sys.modules[_NAMESPACE] = namespace
    digest = hashlib.sha256(str(folder).encode()).hexdigest()[:8]
    name = f"{_NAMESPACE}.{re.sub(r'[^0-9A-Za-z_]', '_', folder.name)}_{digest}"
    if name not in sys.modules:
        init = folder / "__init__.py"
        if init.is_file():
            _execute(name, init, [str(folder)])
        else:
            package = ModuleType(name)
            package.__path__ = [str(folder)]
            sys.modules[name] = package
    return name


def _execute(name: str, path: Path, search: list[str] | None = None) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=search)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _what(error: BaseException, folder: Path | None = None) -> str:
    """`NameError: name 'x' is not defined (/path/spec.py:12)`: the innermost line in `folder`, else the innermost."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__}: {error.msg} ({error.filename}:{error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if folder and Path(frame.filename).is_relative_to(folder)] or frames
    message = f"{type(error).__name__}: {error}"
    return f"{message} ({own[-1].filename}:{own[-1].lineno})" if own else message


def _require_packages(adapter: LoadedAdapter) -> None:
    for requirement in adapter.spec.requires:
        try:
            found = importlib.util.find_spec(requirement.module)
        except (ImportError, ValueError):  # a parent package is missing, or a half-made module is in sys.modules
            found = None
        if found is None:
            raise MissingPackage(
                f"adapter {adapter.spec.name!r} needs the package {requirement.module!r}, which is not installed; "
                f"install it with: {requirement.install}"
            )


def _validate(adapter: LoadedAdapter) -> None:
    try:
        adapter.spec.validate()
    except SpecError:
        raise
    except Exception as error:
        raise SpecError(f"adapter {adapter.spec.name!r} ({adapter.origin}): {_what(error)}") from error
