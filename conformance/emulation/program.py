"""How a replay runs what a capture wrote down.

There are three kinds of cell:

  outside   existed before the capture: known by its address, and checked at each replay to be still there
  static    made by the capture and still referenced when it ended (outputs): keeps its address, filled by each replay
  scratch   made by the capture and seen by nobody afterwards: lives from its call to its last use within one replay

Everything that a replay can know beforehand is prepared once, in a table of tensors and constants: to run a call is to
take its arguments from the table, call the operator below torch's Python wrapper, and put its result back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from types import BuiltinFunctionType
from typing import Any, NamedTuple

import torch

from conformance.emulation.bindings import python_binding
from conformance.emulation.errors import UseAfterFree
from conformance.emulation.poison import poison_
from conformance.emulation.tape import Call, Cell, Slot, Tape, View, results_in

CPU, META = torch.device("cpu"), torch.device("meta")
Table = list[Any]
Take = Callable[[Table], Sequence[Any]]


class Filled(NamedTuple):
    """What becomes of a block that a call made."""

    result: int
    slot: int
    static: torch.Tensor | None  # copied into, where code outside may look
    strided: Sequence[tuple[int, Sequence[int], Sequence[int], int]]  # other slots on a scratch block: plain views
    others: Sequence[tuple[int, View]]  # of another dtype, conjugated or negated


class Step(NamedTuple):
    """One call, prepared."""

    op: Callable[..., Any]
    take: Take
    kwargs: dict[str, Any]
    fills: Sequence[Filled]
    drops: Sequence[int]  # slots of scratch blocks that are not used any more


class Program:
    """A frozen tape: runs its calls into the same memory each time, without any Python of the captured code."""

    def __init__(self, tape: Tape) -> None:
        """Freeze `tape`. To be called with dispatch modes and autograd off, as :meth:`replay`."""
        tape.freeze()
        self.calls = tape.calls
        self.grad_mode = tape.grad_mode
        self._cells = tape.cells
        self._table: Table = [None] * tape.slots
        self._outside = [cell for cell in self._cells if cell.made_by is None]
        self._references = [cell.weak.cdata for cell in self._outside]
        self._addresses = [cell.address for cell in self._outside]
        self._views = {slot: view for cell in self._cells for view, slot in cell.views.items()}
        self._scratch: set[int] = set()
        for cell in self._cells:
            self._lay_out(cell)
        self._steps = self._prepared()
        self.poison_static()

    @property
    def nbytes(self) -> int:
        """Bytes of every block that the capture made."""
        return sum(cell.nbytes for cell in self._cells if cell.made_by is not None)

    def poison_static(self) -> None:
        """Turn what earlier replays left in static blocks into poison."""
        for call in self.calls:
            for made in call.makes:
                if self._cells[made.cell].static is not None:
                    poison_(self._table[made.slot])

    def replay(self) -> None:
        """Run every call. To be called with dispatch modes and autograd off.

        Raises :class:`UseAfterFree`, before anything runs, when memory from outside is gone.
        """
        held = self._hold_outside()
        table = self._table
        as_strided = torch.as_strided
        for op, take, kwargs, fills, drops in self._steps:
            result = op(*take(table), **kwargs)
            for position, slot, static, strided, others in fills:
                made = results_in(result)[position]
                if static is not None:
                    static.copy_(made)
                    continue
                table[slot] = made
                for other, size, stride, offset in strided:
                    table[other] = as_strided(made, size, stride, offset)
                for other, view in others:
                    table[other] = view.within(made)
            for slot in drops:
                table[slot] = None
        del held

    def _hold_outside(self) -> list[torch.UntypedStorage]:
        """The storages of memory from outside, so that no other thread frees them during a replay."""
        held: list[torch.UntypedStorage] = list(map(torch.UntypedStorage._new_with_weak_ptr, self._references))
        if None in held or [storage.data_ptr() for storage in held] != self._addresses:
            self._explain_what_is_gone(held)
        return held

    def _explain_what_is_gone(self, held: Sequence[torch.UntypedStorage | None]) -> None:
        for cell, storage in zip(self._outside, held, strict=True):
            if storage is None or storage.data_ptr() != cell.address:
                call = self.calls[cell.first_use]
                raise UseAfterFree(
                    f"replay touches memory that was freed after capture: {call.name} recorded at {call.site} uses a "
                    f"block of {cell.nbytes} bytes that nothing holds any more. On CUDA this reads whatever is there "
                    "now. Keep a reference to every tensor that the captured code uses for as long as the graph lives."
                )

    def _lay_out(self, cell: Cell) -> None:
        """Put the views of a cell that keeps its address into the table."""
        if cell.made_by is None:
            # Made from the address: it owns nothing, and so does not keep the memory alive.
            storage: Any = torch._C._construct_storage_from_data_pointer(cell.address, CPU, cell.nbytes)
        elif cell.static is not None:
            storage = cell.static
        else:
            self._scratch.update(cell.views.values())
            return
        for view, slot in cell.views.items():
            self._table[slot] = view.on(storage)

    def _prepared(self) -> list[Step]:
        drops: dict[int, list[int]] = {}
        for cell in self._cells:
            if cell.made_by is not None and cell.static is None:
                drops.setdefault(cell.last_use, []).extend(map(int, cell.views.values()))
        return [self._step(call, drops.get(index, ())) for index, call in enumerate(self.calls)]

    def _step(self, call: Call, drops: Sequence[int]) -> Step:
        op = call.op
        if isinstance(op, BuiltinFunctionType):  # an operator as it is, not one that draws or poisons
            keywords = {keyword: self._stand_in(value) for keyword, value in call.kwargs.items()}
            op = python_binding(call.name, [self._stand_in(value) for value in call.args], keywords) or op
        values = list(call.args)
        kwargs = dict(call.kwargs)
        moving = [keyword for keyword, value in kwargs.items() if _has_slot(value)]
        if moving:
            values += [kwargs.pop(keyword) for keyword in moving]
            op = _by_keyword(op, len(call.args), moving)
        fills = [self._fill(made.result, made.cell, made.slot, call.keeps_old_content) for made in call.makes]
        return Step(op, self._taker(values), kwargs, [fill for fill in fills if fill is not None], drops)

    def _stand_in(self, value: Any) -> Any:
        """An argument with empty tensors of its kind in place of slots."""
        if isinstance(value, Slot):
            view = self._views[value]
            return torch.empty((1,) * len(view.size), dtype=view.dtype, device=META)
        return [self._stand_in(item) for item in value] if isinstance(value, list) else value

    def _fill(self, result: int, cell_index: int, slot: Slot, keeps_old_content: bool) -> Filled | None:
        cell = self._cells[cell_index]
        if cell.static is not None:
            return None if keeps_old_content else Filled(result, slot, self._table[slot], (), ())
        strided, others = [], []
        base = self._views[slot]
        for view, other in cell.views.items():
            if other == slot:
                continue
            if view.dtype == base.dtype and not (view.conjugated or view.negated):
                strided.append((int(other), view.size, view.stride, view.offset))
            else:
                others.append((int(other), view))
        return Filled(result, int(slot), None, strided, others)

    def _taker(self, values: Sequence[Any]) -> Take:
        """A function that takes these arguments from the table, with what never changes put there now."""
        places, gathered = [], []
        for position, value in enumerate(values):
            if _is_slot(value):
                places.append(int(value))
                continue
            if _has_slot(value):
                indices = [self._place(item) for item in value]
                if self._scratch.isdisjoint(indices):
                    value = [self._table[index] for index in indices]
                else:
                    gathered.append((position, _getter(indices)))
                    value = None
            places.append(self._place(value))
        take = _getter(places)
        return _gathering(take, gathered) if gathered else take

    def _place(self, value: Any) -> int:
        """Where in the table a value is, after a constant was put there."""
        if _is_slot(value):
            return int(value)
        self._table.append(value)
        return len(self._table) - 1


def _is_slot(value: Any) -> bool:
    return isinstance(value, Slot)


def _has_slot(value: Any) -> bool:
    return _is_slot(value) or (isinstance(value, list) and any(map(_is_slot, value)))


def _getter(places: Sequence[int]) -> Take:
    if len(places) >= 2:
        return itemgetter(*places)
    start = places[0] if places else 0  # `itemgetter` of one place gives its value; a slice gives a sequence of it
    return itemgetter(slice(start, start + len(places)))


def _gathering(take: Take, gathered: Sequence[tuple[int, Take]]) -> Take:
    """Build lists anew for a call: a list kept in the table would keep scratch blocks alive."""

    def gather(table: Table) -> list[Any]:
        values = list(take(table))
        for position, take_list in gathered:
            values[position] = list(take_list(table))
        return values

    return gather


def _by_keyword(op: Callable[..., Any], positional: int, keywords: Sequence[str]) -> Callable[..., Any]:
    """`op`, taking what follows the first `positional` values as `keywords`."""

    def call(*values: Any, **kwargs: Any) -> Any:
        return op(*values[:positional], **dict(zip(keywords, values[positional:], strict=True)), **kwargs)

    return call
