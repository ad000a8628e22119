"""The model's half: what a submodule takes and returns, how it is called, and which part of its output is whose."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from runner.errors import AdapterError
from runner.lengths import LengthContract, PerRowLengths

Tensors = Mapping[str, Tensor]  # by input or output name
Sizes = Mapping[str, int]  # by axis name


class AxisMode(Enum):
    """PADDED: a bucket serves every smaller size. EXACT: padding would reach real output; sizes are equal, also 0."""

    PADDED = "padded"
    EXACT = "exact"


PADDED, EXACT = AxisMode.PADDED, AxisMode.EXACT


@dataclass(frozen=True)
class InputSpec:
    """A tensor of `forward`, padded with `pad`; or a `host` one on the CPU, which only a length contract reads."""

    name: str
    dtype: torch.dtype
    axes: tuple[str | int, ...]
    pad: float = 0
    host: bool = False


@dataclass(frozen=True)
class OutputSpec:
    """A tensor leaf of the result. An axis no input has is its length axis, ruled by `length` and the sizes of `of`."""

    name: str
    axes: tuple[str | int, ...]
    length: LengthContract | None = None
    of: str = "frames"


class GraphAdapter:
    """Subclass it, declare these, and write `forward`. Override the rest only where needed."""

    inputs: ClassVar[tuple[InputSpec, ...]] = ()
    outputs: ClassVar[tuple[OutputSpec, ...]] = ()
    axes: ClassVar[Mapping[str, AxisMode]] = {}  # of a bucket, in the order of its label
    sizes: Sizes = MappingProxyType({})  # of the inputs' other named axes (`n_vq`); set in `__init__`

    def forward(self, *tensors: Tensor) -> Any:
        """Device inputs, in order, to a pytree of tensors in the order of `outputs`; runs eagerly and captured."""
        raise NotImplementedError(f"{type(self).__qualname__} must define forward(self, *tensors)")

    def ineligible(self, **inputs: Tensor) -> str | None:
        """One word for why this call must run eagerly, or None. Runs on every call: must not synchronise."""
        return None

    def load(self, static: Tensors, inputs: Tensors) -> None:
        """Copy `inputs` left-aligned into the static buffers, and reset to `pad` all that they do not cover."""
        for spec in self.device_inputs():
            buffer, tensor = static[spec.name], inputs[spec.name]
            if buffer.shape != tensor.shape:
                buffer.fill_(spec.pad)
            buffer[tuple([slice(size) for size in tensor.shape])].copy_(tensor)

    def unload(self, outputs: Tensors, inputs: Tensors, actual: Sizes, bucket: Sizes) -> dict[str, Any]:
        """Fresh clones of the caller's part of the static `outputs`, by output name; per-row lengths give a tuple."""
        kept = {name: view.clone() for name, view in self.kept(outputs, actual, bucket).items()}
        return {spec.name: split_rows(spec, kept, inputs, actual) for spec in self.outputs}

    def kept(self, outputs: Tensors, actual: Sizes, bucket: Sizes) -> dict[str, Tensor]:
        """Views of the caller's part of the static `outputs`: its rows, and the length that the contract keeps."""
        views: dict[str, Tensor] = {}
        for spec in self.outputs:
            output, kept = outputs[spec.name], [slice(actual.get(str(axis))) for axis in spec.axes]
            if spec.length and not isinstance(spec.length, PerRowLengths):
                at = self.length_positions(spec)[0]
                kept[at] = slice(spec.length.trimmed(output.shape[at], actual[spec.of], bucket[spec.of]))
            views[spec.name] = output[tuple(kept)]
        return views

    def rows_of(self, result: Any, inputs: Tensors) -> Any:
        """An eager `result` in the structure that `unload` gives: per-row lengths make an output a tuple of rows."""
        if not self.has_rows():
            return result
        outputs, structure = self.named_outputs(result)
        return tree_unflatten([split_rows(spec, outputs, inputs) for spec in self.outputs], structure)

    def has_rows(self) -> bool:
        return any(isinstance(spec.length, PerRowLengths) for spec in self.outputs)

    def overrides(self, *names: str) -> bool:
        """Whether a subclass, or this instance, has a method of its own for one of `names`."""
        return any(name in vars(self) or getattr(type(self), name) is not getattr(GraphAdapter, name) for name in names)

    def device_inputs(self) -> list[InputSpec]:
        return [spec for spec in self.inputs if not spec.host]

    def fixed_sizes(self) -> Sizes:
        """`sizes`. Raises AdapterError where it lacks an input's axis that no bucket varies."""
        named = {axis for spec in self.inputs for axis in spec.axes if isinstance(axis, str)}
        for axis in named.difference(self.axes, self.sizes):
            raise AdapterError(f"{type(self).__qualname__}: set self.sizes[{axis!r}] in __init__, or add it to `axes`")
        return self.sizes

    def measure(self, inputs: Mapping[str, Any], device: torch.device) -> dict[str, int] | str:
        """The call's size of each axis, or one word for what contradicts the declaration."""
        sizes: dict[str, int] = {}
        for spec in self.inputs:
            tensor = inputs[spec.name]
            if not isinstance(tensor, Tensor):
                return "not_a_tensor"
            if tensor.ndim != len(spec.axes) or tensor.dtype is not spec.dtype:
                return "rank" if tensor.ndim != len(spec.axes) else "dtype"
            if (tensor.device.type != "cpu") if spec.host else (tensor.device != device):
                return "device"
            for axis, size in zip(spec.axes, tensor.shape, strict=True):
                if axis not in self.axes and size != self.sizes.get(str(axis), axis):
                    return "fixed_size"
                if size == 0 and self.axes.get(str(axis)) is not EXACT:
                    return "empty"
                if axis in self.axes and sizes.setdefault(str(axis), size) != size:
                    return "inconsistent_sizes"
        return sizes

    def named_outputs(self, result: Any, bucket: Sizes | None = None) -> tuple[Tensors, TreeSpec]:
        """The leaves of `result` by output name, and its structure. Raises AdapterError unless `outputs` matches."""
        leaves, structure = tree_flatten(result)
        sizes: dict[Any, int] = {**self.sizes, **(bucket or {})}
        expected = [[sizes.get(axis, axis) for axis in spec.axes] for spec in self.outputs]
        found = [list(leaf.shape) if isinstance(leaf, Tensor) else [] for leaf in leaves]
        loose = [[e if isinstance(e, int) else f for f, e in zip(*pair)] for pair in zip(found, expected)]  # noqa: B905
        if loose != found or list(map(len, found)) != list(map(len, expected)):
            raise AdapterError(f"forward must return tensors alone, one an output: expected {expected}, found {found}")
        return {spec.name: leaf for spec, leaf in zip(self.outputs, leaves, strict=True)}, structure

    @classmethod
    def length_positions(cls, spec: OutputSpec) -> list[int]:
        """Where `spec` has axes whose size only a length contract can tell."""
        known = set(cls.axes).union(*(declared.axes for declared in cls.inputs))
        return [at for at, axis in enumerate(spec.axes) if isinstance(axis, str) and axis not in known]

    @classmethod
    def validate_declaration(cls) -> None:
        """Raise AdapterError for a declaration that contradicts itself. Builds nothing."""

        def require(right: object, problem: str) -> None:
            if not right:
                raise AdapterError(f"{cls.__qualname__}: {problem}")

        for field in ("inputs", "outputs", "axes"):
            found, wanted = getattr(cls, field), "at least one (a tuple of specs; for axes a mapping)"
            require(found and isinstance(found, tuple | Mapping), f"`{field}` must declare {wanted}, found {found!r}")
        names = [spec.name for spec in cls.inputs] + [spec.name for spec in cls.outputs]
        require(len(set(names)) == len(names), f"input and output names must be unique, found {names}")
        for axis, mode in cls.axes.items():
            require(isinstance(mode, AxisMode), f"axes[{axis!r}] must be PADDED or EXACT, found {mode!r}")
            used = any(axis in spec.axes for spec in cls.inputs if not spec.host)
            require(used, f"axis {axis!r} is declared, no device input has it: remove it, or name it in an InputSpec")
        for spec in cls.outputs:
            at, where, length = cls.length_positions(spec), f"output {spec.name!r} {spec.axes}", spec.length
            if length is None:
                require(not at, f"{where}: undeclared contract: set `length` for {[spec.axes[i] for i in at]}")
                continue
            right = isinstance(length, LengthContract) and len(at) == 1
            require(right, f"{where}: needs a LengthContract and one length axis, found {length!r}, {len(at)}")
            require(spec.of in cls.axes, f"{where}: of={spec.of!r} names no axis; the axes are {list(cls.axes)}")
            if isinstance(length, PerRowLengths):
                require(length.lengths in names, f"{where}: lengths={length.lengths!r} is none of the tensors {names}")
                placed = spec.axes[0] in cls.axes and at == [len(spec.axes) - 1]
                require(placed, f"{where}: per-row lengths need the row axis first and the length axis last")


def split_rows(spec: OutputSpec, outputs: Tensors, inputs: Tensors, actual: Sizes | None = None) -> Any:
    """An output [batch, ..., length] as rows, views each cut to its own length; as it is under other contracts."""
    contract, output = spec.length, outputs[spec.name]
    if not isinstance(contract, PerRowLengths):
        return output
    given = contract.lengths in inputs
    lengths = (inputs if given else outputs)[contract.lengths]
    if lengths.is_cuda and torch.cuda.is_current_stream_capturing():
        return output.unbind()  # whole: their lengths cannot be read there
    sizes: list[int] = lengths[: len(output)].tolist()
    most = actual[spec.of] if actual and given else output.shape[-1]
    if len(sizes) != len(output) or max(sizes, default=0) > most:
        raise AdapterError(f"{contract.lengths!r} must give each of {len(output)} rows at most {most}, found {sizes}")
    kept = [contract.trimmed(output.shape[-1], size, output.shape[-1]) for size in sizes]
    return tuple([row[..., :length] for row, length in zip(output, kept, strict=True)])
