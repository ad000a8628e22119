"""What a capture writes down, and how a replay runs it.

A graph on CUDA is a list of kernels over addresses. So is a tape: a list of aten calls, each argument a *view of a
cell* (storage, dtype, sizes, strides, offset), where a cell is one block of memory. Views themselves are not recorded,
since a view is only another way to address a cell. There are three kinds of cell:

  outside   existed before the capture: held weakly, and looked up again at each replay
  static    made by the capture and still referenced when it ended (outputs): keeps its address, filled by each replay
  scratch   made by the capture and seen by nobody afterwards: lives from its call to its last use within one replay
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from conformance.emulation.callsite import CallSite
from conformance.emulation.errors import UseAfterFree
from conformance.emulation.poison import poison_


def tensors_in(values: Any) -> Iterator[torch.Tensor]:
    """Tensors among an aten call's arguments or results: at the top, or in a list or tuple."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            for item in value:
                if isinstance(item, torch.Tensor):
                    yield item


def results_in(result: Any) -> Sequence[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return (result,)
    return tuple(tensors_in(result)) if isinstance(result, (list, tuple)) else ()


@dataclass(frozen=True)
class View:
    """How one argument addresses its cell."""

    cell: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    conjugated: bool
    negated: bool

    @classmethod
    def of(cls, tensor: torch.Tensor, cell: int) -> View:
        size, stride, offset = tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
        return cls(cell, tensor.dtype, size, stride, offset, tensor.is_conj(), tensor.is_neg())

    def on(self, storage: torch.UntypedStorage) -> torch.Tensor:
        return self._flagged(torch.empty(0, dtype=self.dtype).set_(storage, self.offset, self.size, self.stride))

    def within(self, tensor: torch.Tensor) -> torch.Tensor:
        """The view on the storage of `tensor`."""
        if tensor.dtype == self.dtype:
            return self._flagged(torch.as_strided(tensor, self.size, self.stride, self.offset))
        return self.on(tensor.untyped_storage())

    def _flagged(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.conjugated:
            tensor = tensor.conj()
        return torch._neg_view(tensor) if self.negated else tensor


@dataclass
class Cell:
    """One block of memory that the recorded calls touch."""

    made_by: int | None  # index of the call that made it; None for memory from outside
    nbytes: int
    weak: StorageWeakRef
    first_use: int
    last_use: int
    saved: torch.UntypedStorage | None = None  # bytes before the capture's own execution overwrote them
    static: torch.UntypedStorage | None = None
    views: dict[View, int] = field(default_factory=dict)  # view -> its slot


@dataclass
class Call:
    """One recorded call. `slots` and `nested` say where in `args` tensors of which slot belong."""

    op: Callable[..., Any]
    name: str
    site: CallSite
    args: list[Any]
    slots: list[tuple[int, int]]
    nested: list[tuple[int, int, int]]
    kwargs: dict[str, Any]
    kwarg_slots: list[tuple[str, int]]
    makes: list[tuple[int, int, int]] = field(default_factory=list)  # (index among results, cell, slot)
    keeps_old_content: bool = False  # an uninitialised block: a replay leaves in a static cell what was there

    def run(self, tensors: list[torch.Tensor | None]) -> Any:
        args = self.args.copy()
        for position, slot in self.slots:
            args[position] = tensors[slot]
        if self.nested:
            for position in {position for position, _, _ in self.nested}:
                args[position] = list(args[position])
            for position, index, slot in self.nested:
                args[position][index] = tensors[slot]
        if self.kwarg_slots:
            kwargs = self.kwargs | {name: tensors[slot] for name, slot in self.kwarg_slots}
            return self.op(*args, **kwargs)
        return self.op(*args, **self.kwargs)


class Tape:
    """Records aten calls during a capture. :meth:`freeze` turns it into a :class:`Program`."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._cells: list[Cell] = []
        self._cell_of: dict[int, int] = {}  # address of the storage object -> cell
        self._alive: list[torch.UntypedStorage] = []  # keeps addresses of storages made here from being used again
        self._slots: list[View] = []

    def before_write(self, tensor: torch.Tensor) -> None:
        """Keep what memory from outside holds: on CUDA, a capture executes nothing and so changes nothing."""
        cell = self._cells[self._cell(tensor)]
        if cell.made_by is None and cell.saved is None:
            cell.saved = tensor.untyped_storage().clone()

    def record(
        self,
        op: Callable[..., Any],
        name: str,
        site: CallSite,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: Any,
        *,
        by_value: Callable[[torch.Tensor], bool],
        keeps_old_content: bool = False,
    ) -> None:
        """Write down a call that has just been made. `by_value` says which host tensors are read once, now."""
        call = Call(op, name, site, list(args), [], [], dict(kwargs), [], keeps_old_content=keeps_old_content)
        for position, value in enumerate(args):
            if isinstance(value, torch.Tensor):
                call.args[position] = self._place(value, by_value, call.slots, (position,))
            elif isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
                call.args[position] = [
                    self._place(item, by_value, call.nested, (position, index))
                    if isinstance(item, torch.Tensor)
                    else item
                    for index, item in enumerate(value)
                ]
        for keyword, value in kwargs.items():
            if isinstance(value, torch.Tensor):
                call.kwargs[keyword] = self._place(value, by_value, call.kwarg_slots, (keyword,))
        for index, tensor in enumerate(results_in(result)):
            key = tensor.untyped_storage()._cdata
            if key not in self._cell_of:
                cell = self._cell(tensor, made_by=len(self.calls))
                self._alive.append(tensor.untyped_storage())
                call.makes.append((index, cell, self._slot(tensor, cell)))
        self.calls.append(call)

    def _place(
        self, tensor: torch.Tensor, by_value: Callable[[torch.Tensor], bool], places: list[Any], at: tuple[Any, ...]
    ) -> torch.Tensor | None:
        if by_value(tensor):
            return tensor.detach().clone()
        cell = self._cell(tensor)
        self._cells[cell].last_use = len(self.calls)
        places.append((*at, self._slot(tensor, cell)))
        return None

    def _cell(self, tensor: torch.Tensor, made_by: int | None = None) -> int:
        storage = tensor.untyped_storage()
        cell = self._cell_of.get(storage._cdata)
        if cell is None:
            cell = self._cell_of[storage._cdata] = len(self._cells)
            now = len(self.calls)
            self._cells.append(Cell(made_by, storage.nbytes(), StorageWeakRef(storage), now, now))
        return cell

    def _slot(self, tensor: torch.Tensor, cell: int) -> int:
        view = View.of(tensor, cell)
        slot = self._cells[cell].views.get(view)
        if slot is None:
            slot = self._cells[cell].views[view] = len(self._slots)
            self._slots.append(view)
        return slot

    def undo_writes(self) -> None:
        """Give memory from outside back what it held before the capture."""
        for cell in self._cells:
            if cell.saved is not None:
                storage = torch.UntypedStorage._new_with_weak_ptr(cell.weak.cdata)
                if storage is not None:
                    storage.copy_(cell.saved)
                cell.saved = None

    def freeze(self) -> Program:
        """End recording. Blocks that are still referenced from outside the tape become static and hold poison."""
        self.undo_writes()
        self._alive.clear()
        for cell in self._cells:
            if cell.made_by is not None and not cell.weak.expired():
                cell.static = torch.UntypedStorage._new_with_weak_ptr(cell.weak.cdata)
        return Program(self.calls, self._cells, self._slots)


class Program:
    """A frozen tape: runs its calls into the same memory each time, without any Python of the captured code."""

    def __init__(self, calls: list[Call], cells: list[Cell], slots: list[View]) -> None:
        self.calls = calls
        self._cells = cells
        self._slots = slots
        self._tensors: list[torch.Tensor | None] = [None] * len(slots)
        self._outside = [cell for cell in cells if cell.made_by is None]
        self._derived: dict[int, list[tuple[int, View]]] = {}
        self._drop_after: dict[int, list[int]] = {}
        for cell in cells:
            if cell.static is not None:
                for view, slot in cell.views.items():
                    self._tensors[slot] = view.on(cell.static)
            elif cell.made_by is not None:
                self._plan_scratch(cell)
        self.poison_static()

    @property
    def nbytes(self) -> int:
        """Bytes of every block that the capture made."""
        return sum(cell.nbytes for cell in self._cells if cell.made_by is not None)

    def _plan_scratch(self, cell: Cell) -> None:
        assert cell.made_by is not None
        index = next(i for i, (_, made, _) in enumerate(self.calls[cell.made_by].makes) if self._cells[made] is cell)
        base = self.calls[cell.made_by].makes[index][2]
        self._derived[base] = [(slot, view) for view, slot in cell.views.items() if slot != base]
        self._drop_after.setdefault(cell.last_use, []).extend(cell.views.values())

    def poison_static(self) -> None:
        """Turn what earlier replays left in static blocks into poison."""
        for call in self.calls:
            for _, cell, slot in call.makes:
                if self._cells[cell].static is not None:
                    tensor = self._tensors[slot]
                    assert tensor is not None
                    poison_(tensor)

    def replay(self) -> None:
        """Run every call. To be called with dispatch modes and autograd off.

        Raises :class:`UseAfterFree`, before anything runs, when memory from outside is gone.
        """
        tensors = self._tensors
        self._look_up_outside(tensors)
        for index, call in enumerate(self.calls):
            result = call.run(tensors)
            if call.makes:
                results = results_in(result)
                for position, cell, slot in call.makes:
                    if self._cells[cell].static is None:
                        tensors[slot] = results[position]
                        for other, view in self._derived[slot]:
                            tensors[other] = view.within(results[position])
                    elif not call.keeps_old_content:
                        tensors[slot].copy_(results[position])  # type: ignore[union-attr]
            for slot in self._drop_after.get(index, ()):
                tensors[slot] = None
        for cell_ in self._outside:
            for slot in cell_.views.values():
                tensors[slot] = None

    def _look_up_outside(self, tensors: list[torch.Tensor | None]) -> None:
        for cell in self._outside:
            storage: torch.UntypedStorage | None = torch.UntypedStorage._new_with_weak_ptr(cell.weak.cdata)
            if storage is None:
                call = self.calls[cell.first_use]
                raise UseAfterFree(
                    f"replay touches memory that was freed after capture: {call.name} recorded at {call.site} uses a "
                    f"block of {cell.nbytes} bytes that nothing holds any more. On CUDA this reads whatever is there "
                    "now. Keep a reference to every tensor that the captured code uses for as long as the graph lives."
                )
            for view, slot in cell.views.items():
                tensors[slot] = view.on(storage)
