"""What a capture writes down.

A graph on CUDA is a list of kernels over addresses. So is a tape: a list of aten calls, each tensor among their
arguments a *view of a cell* (dtype, sizes, strides, offset), where a cell is one block of memory. Views themselves are
not recorded, since a view is only another way to address a cell. `program` runs what is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from conformance.emulation.callsite import CallSite


def tensors_in(values: Any) -> list[torch.Tensor]:
    """Tensors among an aten call's arguments or results: at the top, or in a list or tuple."""
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += [item for item in value if isinstance(item, torch.Tensor)]
    return found


def results_in(result: Any) -> Sequence[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return (result,)
    return tuple(tensors_in(result)) if isinstance(result, (list, tuple)) else ()


class View(NamedTuple):
    """How one argument addresses its cell."""

    dtype: torch.dtype
    size: Sequence[int]
    stride: Sequence[int]
    offset: int
    conjugated: bool
    negated: bool

    @classmethod
    def of(cls, tensor: torch.Tensor) -> View:
        offset = int(tensor.storage_offset())
        return cls(tensor.dtype, tensor.size(), tensor.stride(), offset, tensor.is_conj(), tensor.is_neg())

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


class Slot(int):
    """Stands for a tensor in a recorded call: the number of its view."""


class Made(NamedTuple):
    """A block of memory that a call made: which of its results, in which cell, seen through which view."""

    result: int
    cell: int
    slot: Slot


@dataclass
class Cell:
    """One block of memory that the recorded calls touch."""

    made_by: int | None  # index of the call that made it; None for memory from outside
    address: int
    nbytes: int
    weak: StorageWeakRef
    first_use: int
    last_use: int
    saved: torch.UntypedStorage | None = None  # bytes before the capture's own execution overwrote them
    static: torch.UntypedStorage | None = None  # set when the capture ends, if something still refers to it
    views: dict[View, Slot] = field(default_factory=dict)


@dataclass
class Call:
    """One recorded call. Where a tensor belongs, `args`, `kwargs` and lists in them hold its :class:`Slot`."""

    op: Callable[..., Any]
    name: str
    site: CallSite
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    makes: list[Made]
    keeps_old_content: bool  # an uninitialised block: a replay leaves in a static cell what was there


class Tape:
    """Records aten calls during a capture. :class:`program.Program` runs what it holds."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.cells: list[Cell] = []
        self.slots = 0  # views so far
        self.grad_mode = False  # as it was at the last call: the host's LSTM has other kernels, other bits, with it on
        self._cell_of: dict[int, int] = {}  # address of the storage object -> cell
        self._alive: list[torch.UntypedStorage] = []  # keeps addresses of storages made here from being used again

    def before_write(self, tensor: torch.Tensor) -> None:
        """Keep what memory from outside holds: on CUDA, a capture executes nothing and so changes nothing."""
        cell = self.cells[self._cell(tensor)]
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
        self.grad_mode = torch.is_grad_enabled()
        written_args = [self._written(value, by_value) for value in args]
        written_kwargs = {keyword: self._written(value, by_value) for keyword, value in kwargs.items()}
        makes = []
        for index, tensor in enumerate(results_in(result)):
            storage = tensor.untyped_storage()
            if storage._cdata not in self._cell_of:
                cell = self._cell(tensor, made_by=len(self.calls))
                self._alive.append(storage)
                makes.append(Made(index, cell, self._slot(tensor, cell)))
        self.calls.append(Call(op, name, site, written_args, written_kwargs, makes, keeps_old_content))

    def _written(self, value: Any, by_value: Callable[[torch.Tensor], bool]) -> Any:
        """An argument as it is recorded: tensors by slot or by value, everything else as it is."""
        if isinstance(value, torch.Tensor):
            if by_value(value):
                return value.detach().clone()
            cell = self._cell(value)
            self.cells[cell].last_use = len(self.calls)
            return self._slot(value, cell)
        if isinstance(value, (list, tuple)):
            return [self._written(item, by_value) for item in value]
        return value

    def _cell(self, tensor: torch.Tensor, made_by: int | None = None) -> int:
        storage = tensor.untyped_storage()
        cell = self._cell_of.get(storage._cdata)
        if cell is None:
            cell = self._cell_of[storage._cdata] = len(self.cells)
            now = len(self.calls)
            weak = StorageWeakRef(storage)
            self.cells.append(Cell(made_by, storage.data_ptr(), storage.nbytes(), weak, now, now))
        return cell

    def _slot(self, tensor: torch.Tensor, cell: int) -> Slot:
        views = self.cells[cell].views
        view = View.of(tensor)
        slot = views.get(view)
        if slot is None:
            slot = views[view] = Slot(self.slots)
            self.slots += 1
        return slot

    def undo_writes(self) -> None:
        """Give memory from outside back what it held before the capture."""
        for cell in self.cells:
            if cell.saved is not None:
                storage = torch.UntypedStorage._new_with_weak_ptr(cell.weak.cdata)
                if storage is not None:
                    storage.copy_(cell.saved)
                cell.saved = None

    def freeze(self) -> None:
        """End recording. Blocks that are still referenced from outside the tape become static."""
        self.undo_writes()
        self._alive.clear()
        for cell in self.cells:
            if cell.made_by is not None:
                cell.static = torch.UntypedStorage._new_with_weak_ptr(cell.weak.cdata)
