"""Gluon's language in plain PyTorch, one program at a time, so that a kernel for Hopper can be checked on any host.

The copy engine, the barriers and the matrix units run at their own pace on a GPU; here they run as late, or as early,
as the kernel's own waits allow. LATE_COPIES: a tile arrives only when its barrier is waited for, so a missing wait
reads NaN or the tile before. LATE_PRODUCTS: a product is computed only when it is waited for, so a buffer that was
filled anew too early gives the wrong product. A wait that could never end is an error. Partitions of the warps take
turns: each runs until it has to wait, or has told another that it may go on. Registers, layouts and warps are not
modelled: what the compiler thinks of them, offline compilation says.
"""

from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import torch


class Machine(threading.local):
    """The products that a partition of the warps has under way, and the two ways to be late."""

    def __init__(self, late_copies: bool, late_products: bool):
        self.late_copies, self.late_products = late_copies, late_products
        self.products: list[Product] = []

    def copy_tile(self, desc, at, bar, target, pred=True):
        if not pred:
            return
        source = desc.tile(*at[:3])

        def copy():
            target.values.copy_(source)
            return desc.block_type.nbytes

        if self.late_copies:
            bar.waiting.append(copy)
        else:
            bar.receive(copy)

    def multiply(self, a, b, acc, use_acc=True, is_async=False):
        product = Product(a, b, acc, use_acc)
        if not is_async or not self.late_products:
            product.finish()
        if not is_async:
            return product.value
        self.products.append(product)
        return product

    def wait_products(self, count, deps):
        """All but the latest `count` products are there afterwards."""
        split = max(len(self.products) - count, 0)
        done, self.products = self.products[:split], self.products[split:]
        for product in done:
            product.finish()
        values = tuple(x.finish() if isinstance(x, Product) else x for x in deps)
        return values[0] if len(values) == 1 else values


class Partitions:
    """Partitions of a program's warps, each a thread; one runs at a time, until it has to wait for another."""

    def __init__(self) -> None:
        self.turn, self.alive, self.idle = 0, [], 0
        self.changed, self.failure = threading.Condition(), None

    def run(self, parts, worker_num_warps, worker_num_regs):
        self.turn, self.alive, self.idle, self.failure = 0, list(range(len(parts))), 0, None
        threads = [threading.Thread(target=self._work, args=(i, *part)) for i, part in enumerate(parts)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failure:
            raise self.failure

    def _work(self, me, function, args):
        try:
            self._wait_for_turn(me)
            function(*args)
        except BaseException as failure:  # noqa: BLE001 - raised again by the thread that started this one
            self.failure = self.failure or failure
        with self.changed:
            self.alive.remove(me)
            self.idle = 0
            self._next(me)

    def _next(self, me):
        later = [i for i in self.alive if i > me]
        self.turn = (later or self.alive or [me])[0]
        self.changed.notify_all()

    def _wait_for_turn(self, me):
        with self.changed:
            self.changed.wait_for(lambda: self.turn == me or self.failure, timeout=60)
        assert not self.failure, "another partition has failed"

    def give_way(self, idle=1):
        """Let the others run; an error where none of them has anything left to do but wait."""
        me, self.idle = self.turn, self.idle + idle
        assert self.idle <= 2 * len(self.alive), "waits for ever: nothing is on its way"
        with self.changed:
            self._next(me)
        self._wait_for_turn(me)


PARTITIONS = Partitions()


class Bar:
    """An mbarrier: it turns when as many as it counts have arrived and the bytes they expect are there."""

    def __init__(self) -> None:
        self.count, self.turns, self.arrivals, self.expected, self.waiting = 1, 0, 0, 0, []

    def receive(self, copy: Any) -> None:
        self.expected -= copy()
        self.turn()

    def turn(self) -> None:
        assert self.arrivals <= self.count, "a buffer is filled anew before its last tile was waited for"
        if self.arrivals == self.count and self.expected == 0:
            self.turns, self.arrivals, PARTITIONS.idle = self.turns + 1, 0, 0


class Bars:
    def __init__(self, count: int):
        self.bars = [Bar() for _ in range(count)]

    def index(self, i: Any) -> Bar:
        return self.bars[int(i)]


class Shared:
    """A view of shared memory."""

    def __init__(self, values: torch.Tensor):
        self.values = values

    def index(self, i: Any) -> Shared:
        return Shared(self.values[int(i)])

    def reshape(self, shape: list[int]) -> Shared:
        return Shared(self.values.view(shape))

    def permute(self, order: tuple[int, ...]) -> Shared:
        return Shared(self.values.permute(order))

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    def load(self, layout: Any) -> torch.Tensor:
        return self.values.clone()


class Product:
    def __init__(self, a: Any, b: Any, acc: Any, use_acc: bool):
        self.operands, self.value = (a, b, acc, use_acc), None

    def finish(self) -> torch.Tensor:
        if self.value is None:
            a, b, acc, use_acc = self.operands
            left, right = (x.values if isinstance(x, Shared) else x for x in (a, b))
            self.value = left.float() @ right.float() + (acc if use_acc else 0.0)
        return self.value


class Pointer:
    def __init__(self, values: torch.Tensor, offset: Any = 0):
        self.values, self.offset = values, offset

    def __add__(self, offset: Any) -> Pointer:
        return Pointer(self.values, self.offset + offset)


class Descriptor:
    """A tensor [batch, heads, rows, head_dim] and the tile that the copy engine takes of it."""

    def __init__(self, tensor: torch.Tensor, rows: int):
        self.tensor, self.rows, self.dtype, self.layout = tensor, rows, tensor.dtype, None
        self.block_type = SimpleNamespace(nbytes=rows * tensor.shape[3] * tensor.element_size())

    def tile(self, batch: Any, head: Any, row: Any) -> torch.Tensor:
        tile = torch.zeros(1, 1, self.rows, self.tensor.shape[3], dtype=self.dtype)
        assert int(row) >= 0, "the copy engine reads in front of the tensor"
        found = self.tensor[int(batch), int(head), int(row) : int(row) + self.rows]
        tile[0, 0, : found.shape[0]] = found
        return tile


def init(bar: Bar, count: int) -> None:
    bar.count = count


def wait_for(bar: Bar, phase: Any) -> None:
    while (bar.turns & 1) == int(phase):
        copies, bar.waiting = bar.waiting, []
        for copy in copies:
            bar.receive(copy)
        if not copies:
            PARTITIONS.give_way()


def expect(bar: Bar, count: int, pred: Any = True) -> None:
    if pred:
        bar.arrivals, bar.expected = bar.arrivals + 1, bar.expected + count
        assert bar.arrivals <= bar.count, "a buffer is filled anew before its last tile was waited for"


def arrive(bar: Bar, count: int) -> None:
    bar.arrivals += count
    bar.turn()
    PARTITIONS.give_way(idle=0)  # whoever waited for this comes before what follows


def allocate(dtype: torch.dtype, shape: list[int], layout: Any) -> Bar | Bars | Shared:
    if dtype == torch.int64:
        return Bars(shape[0]) if len(shape) > 1 else Bar()
    return Shared(torch.full(shape, float("nan"), dtype=dtype))


def store(pointer: Pointer, values: Any, mask: Any) -> None:
    at, values, mask = torch.broadcast_tensors(pointer.offset, values, mask)
    pointer.values.view(-1)[at[mask]] = values[mask].to(pointer.values.dtype)


class Scalar(torch.Tensor):
    """A number given to a kernel, whose bits can be taken for another type's."""

    def to(self, dtype, bitcast=False):
        return self.view(dtype) if bitcast else super().to(dtype)


def scalar(value: float) -> torch.Tensor:
    return torch.tensor(value).as_subclass(Scalar)


def module(name: str, **names: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(names)
    return made


def language(machine: Machine) -> ModuleType:
    number = torch.as_tensor
    return module(
        "language", constexpr=object, bfloat16=torch.bfloat16, float16=torch.float16, float32=torch.float32,
        int32=torch.int32, int64=torch.int64, program_id=lambda axis: torch.tensor(machine.program), store=store,
        warp_specialize=PARTITIONS.run,
        arange=lambda a, b, layout: torch.arange(a, b), static_range=range,
        zeros=lambda shape, dtype, layout: torch.zeros(shape, dtype=dtype), exp2=torch.exp2, abs=torch.abs,
        where=torch.where, sum=torch.sum, max=lambda x, axis: x.amax(axis), convert_layout=lambda x, layout: x,
        maximum=lambda a, b: torch.maximum(number(a), number(b)), allocate_shared_memory=allocate,
        minimum=lambda a, b: torch.minimum(number(a), number(b)), NVMMASharedLayout=None,
        **dict.fromkeys(("SliceLayout", "DotOperandLayout", "NVMMADistributedLayout"), lambda *a, **k: None),
    )  # fmt: skip


def hopper(machine: Machine) -> ModuleType:
    bars = SimpleNamespace(MBarrierLayout=lambda: None, init=init, expect=expect, arrive=arrive, wait=wait_for)
    return module(
        "hopper", mbarrier=bars, tma=SimpleNamespace(async_copy_global_to_shared=machine.copy_tile),
        warpgroup_mma=machine.multiply, warpgroup_mma_wait=machine.wait_products,
    )  # fmt: skip


def modules(machine: Machine) -> dict[str, ModuleType]:
    """What `triton.experimental.gluon` and its parts are replaced by while the kernel's file is loaded."""
    words = language(machine)
    gluon = module("gluon", jit=lambda fn: fn, language=words)
    root = "triton.experimental"
    return {
        root: module("experimental", gluon=gluon),
        f"{root}.gluon": gluon,
        f"{root}.gluon.language": words,
        f"{root}.gluon.language.nvidia.hopper": hopper(machine),
        f"{root}.gluon.nvidia.hopper": module("host", TensorDescriptor=None),
    }


def load(source: str, machine: Machine) -> dict[str, Any]:
    """The names of a Gluon kernel's file, its functions as plain Python."""
    stand_ins = modules(machine)
    kept = {name: sys.modules.get(name) for name in stand_ins}
    names: dict[str, Any] = {"__name__": "kernels._gluon_by_hand"}
    sys.modules.update(stand_ins)
    try:
        exec(compile(source, "gluon_by_hand.py", "exec"), names)
    finally:
        for name, module in kept.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
    return names
