"""Runs decode steps and prefill chunks: the buffers they read, a program for each shape, CUDA graphs on a GPU.

It knows rows, not conversations: `Rows` holds what a step needs of each row, and moves on by itself on the device.
Programs are kept by shape and by which of Triton and PyTorch does each group, so swapping a kernel in the middle of
an answer means running another program on the same buffers.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from playground.decoder.model import ForwardInputs, Model
from playground.decoder.ops import GROUPS
from playground.decoder.program import Arena, Program, Recorder
from playground.decoder.sampler import Sampling

MOST_PROGRAMS = 96  # kept at once; the one unused for longest goes
PREFILL_ROWS = (1, 8)  # sequences in one prefill: the next of these that holds them
CPU_PREFILLS = (1, 2, 4, 8, 12, 16, 24)  # tokens in one: the next of these; beyond them a multiple of 16
WARM_ROWS = 8  # conversations at once whose decode programs are made ahead


@dataclass(frozen=True)
class Row:
    """One sequence as a step sees it: its last token (to be read next), where it is, its pages, how it samples."""

    token: int
    position: int
    pages: Sequence[int]
    sampling: Sampling
    step: int


@dataclass(frozen=True)
class Chunk:
    """A stretch of a prompt: tokens from `start` on, and the row as it stands after them."""

    tokens: Sequence[int]
    start: int
    slots: Sequence[int]
    row: Row


class Rows:
    """Per-row state on the device. position -1 marks a row that is padding."""

    def __init__(self, count: int, max_pages: int, device: torch.device):
        def make(dtype: torch.dtype, *shape: int) -> torch.Tensor:
            return torch.zeros(count, *shape, dtype=dtype, device=device)

        self.ids = make(torch.int64)
        self.positions = make(torch.int64) - 1
        self.slots = make(torch.int64) - 1
        self.lengths = make(torch.int32)
        self.block_table = make(torch.int32, max_pages)
        self.temperature = make(torch.float32)
        self.top_k = make(torch.int32)
        self.top_p = make(torch.float32) + 1
        self.seed = make(torch.int64)
        self.step = make(torch.int64)

    def load(self, rows: Sequence[Row]) -> None:
        """Rows 0, 1, ... become these, and all others padding."""
        spare = self.ids.shape[0] - len(rows)
        pad = [0] * spare
        self._fill(self.ids, [r.token for r in rows] + pad)
        self._fill(self.positions, [r.position for r in rows] + [-1] * spare)
        self._fill(self.slots, [-1] * len(self.slots))
        self._fill(self.lengths, [r.position + 1 for r in rows] + pad)
        self._fill(self.temperature, [r.sampling.temperature for r in rows] + pad)
        self._fill(self.top_k, [r.sampling.top_k for r in rows] + pad)
        self._fill(self.top_p, [r.sampling.top_p for r in rows] + [1.0] * spare)
        self._fill(self.seed, [r.sampling.seed for r in rows] + pad)
        self._fill(self.step, [r.step for r in rows] + pad)
        table = torch.zeros(len(rows), self.block_table.shape[1], dtype=torch.int32)
        for index, row in enumerate(rows):
            table[index, : len(row.pages)] = torch.tensor(row.pages, dtype=torch.int32)
        self.block_table[: len(rows)] = table.to(self.block_table.device)

    @staticmethod
    def _fill(tensor: torch.Tensor, values: list) -> None:
        tensor.copy_(torch.tensor(values, dtype=tensor.dtype))

    def options(self, count: int) -> dict[str, torch.Tensor]:
        """What `sample` takes besides the logits."""
        names = ("temperature", "top_k", "top_p", "seed", "step")
        return {name: getattr(self, name)[:count] for name in names}


class Runner:
    """Makes and runs the programs of one model.

    chunk: the most tokens in one prefill. graphs: capture programs in CUDA graphs; fuse: join the kernels of a step
    of one sequence. Both on a GPU, unless told otherwise.
    """

    def __init__(
        self,
        model: Model,
        page_size: int,
        max_batch: int,
        chunk: int,
        graphs: bool | None = None,
        fuse: bool | None = None,
    ):
        device = model.device
        self.fuse = device.type == "cuda" if fuse is None else fuse
        self.model = model
        self.page_size = page_size
        self.chunk = chunk
        self.graphs = device.type == "cuda" if graphs is None else graphs
        self.table: dict[str, str] = dict.fromkeys(GROUPS, "triton")
        self.arena = Arena(device)
        max_pages = -(-model.max_context // page_size)
        self.rows = Rows(max_batch, max_pages, device)
        self._prompt = Rows(PREFILL_ROWS[-1], max_pages, device)
        self._tokens = {
            name: torch.zeros(chunk, dtype=torch.int64, device=device) for name in ("ids", "positions", "slots")
        }
        self._q_starts = torch.zeros(PREFILL_ROWS[-1] + 1, dtype=torch.int32, device=device)
        self._last = torch.zeros(PREFILL_ROWS[-1], dtype=torch.int64, device=device)
        self._programs: OrderedDict[tuple, _Ready] = OrderedDict()

    def swap(self, table: Mapping[str, str]) -> None:
        """From now on these groups are done by "triton" or "torch"; others stay as they are."""
        self.table |= table

    # Decode

    def decode_size(self, count: int) -> int:
        """Rows in the program that serves `count`: exact on a CPU, in steps where each shape is a captured graph."""
        if self.model.device.type == "cpu":
            return count
        size = 1 << (count - 1).bit_length() if count <= 8 else -(-count // 8) * 8
        return min(size, len(self.rows.ids))

    def prepare(self, count: int) -> bool:
        """Make the decode program for `count` rows. True where that disturbed the rows: load them again."""
        return self._get("decode", self.decode_size(count))[1]

    def decode(self, count: int) -> dict[str, torch.Tensor]:
        """One step of rows 0 .. count - 1. Returns "ids" [count] and "logits", valid until the next program runs."""
        out = self._get("decode", self.decode_size(count))[0].run()
        return {name: tensor[:count] for name, tensor in out.items()}

    def decode_program(self, count: int) -> Program:
        """For profiles; running it moves the rows on."""
        return self._get("decode", self.decode_size(count))[0].program

    def _record_decode(self, ops: Recorder, count: int) -> None:
        rows = self.rows
        table, positions = rows.block_table[:count], rows.positions[:count]
        ops(
            "find_slots",
            box="state",
            positions=positions,
            block_table=table,
            slots=rows.slots[:count],
            page_size=self.page_size,
        )
        batch = ForwardInputs(rows.ids[:count], positions, rows.slots[:count], table, rows.lengths[:count])
        logits = self.model.forward(ops, batch)
        ids = ops("sample", box="sampling", logits=logits, **rows.options(count))
        state = {"positions": positions, "lengths": rows.lengths[:count], "step": rows.step[:count]}
        ops("advance", box="state", sampled=ids, ids=rows.ids[:count], **state)
        ops.program.outputs = {"ids": ids, "logits": logits}

    # Prefill

    def prefill_size(self, tokens: int, sequences: int) -> tuple[int, int]:
        rows = next(n for n in PREFILL_ROWS if n >= sequences)
        if self.model.device.type == "cpu":
            size = next((size for size in CPU_PREFILLS if size >= tokens), -(-tokens // 16) * 16)
            return min(size, self.chunk), rows
        return min(max(16, 1 << (tokens - 1).bit_length()), self.chunk), rows

    def prefill(self, chunks: Sequence[Chunk]) -> dict[str, torch.Tensor]:
        """Write the chunks' keys and values; "ids" and "logits" [chunks] follow each chunk's last token."""
        total = sum(len(c.tokens) for c in chunks)
        size = self.prefill_size(total, len(chunks))
        ready = self._get("prefill", size)[0]
        self._load_chunks(chunks, size[0])
        out = ready.run()
        return {name: tensor[: len(chunks)] for name, tensor in out.items()}

    def _load_chunks(self, chunks: Sequence[Chunk], size: int) -> None:
        self._prompt.load([c.row for c in chunks])
        ids = [token for chunk in chunks for token in chunk.tokens]
        positions = [chunk.start + i for chunk in chunks for i in range(len(chunk.tokens))]
        slots = [slot for chunk in chunks for slot in chunk.slots]
        starts = [0, *itertools.accumulate(len(chunk.tokens) for chunk in chunks)]
        pad = size - len(ids)
        self._tokens["ids"][:size] = torch.tensor(ids + [0] * pad)
        self._tokens["positions"][:size] = torch.tensor(positions + [0] * pad)
        self._tokens["slots"][:size] = torch.tensor(slots + [-1] * pad)
        spare = len(self._q_starts) - len(starts)
        self._q_starts.copy_(torch.tensor(starts + starts[-1:] * spare))
        self._last.copy_(torch.tensor([s - 1 for s in starts[1:]] + [0] * spare))

    def _record_prefill(self, ops: Recorder, size: tuple[int, int]) -> None:
        tokens, count = size
        rows = self._prompt
        batch = ForwardInputs(
            **{name: tensor[:tokens] for name, tensor in self._tokens.items()},
            block_table=rows.block_table[:count],
            lengths=rows.lengths[:count],
            q_starts=self._q_starts[: count + 1],
            rows=self._last[:count],
        )
        logits = self.model.forward(ops, batch)
        ids = ops("sample", box="sampling", logits=logits, **rows.options(count))
        ops.program.outputs = {"ids": ids, "logits": logits}

    # Programs

    def likely(self) -> list[tuple[str, int | tuple[int, int]]]:
        """The programs that a chat asks for first, those that every chat needs before the others."""
        prefills = dict.fromkeys(self.prefill_size(n, 1) for n in range(1, self.chunk + 1))
        decodes = dict.fromkeys(self.decode_size(n) for n in range(1, min(WARM_ROWS, len(self.rows.ids)) + 1))
        sizes = [("decode", n) for n in decodes] + [("prefill", (self.chunk, PREFILL_ROWS[-1]))]
        return [sizes[0], *(("prefill", size) for size in reversed(prefills)), *sizes[1:]]

    def prepare_prefill(self, tokens: int) -> None:
        """Make the program that reads a prompt of so many tokens, without running it."""
        self._get("prefill", self.prefill_size(tokens, 1))[0].program.prepare()

    def rehearse(self, kind: str, size: int | tuple[int, int]) -> None:
        """Make a program and run it on padding, which compiles its kernels. The rows are to be loaded again."""
        ready = self._get(kind, size)[0]
        self.rows.load([])
        self._load_chunks([], self.chunk)
        ready.run()

    def _get(self, kind: str, size: int | tuple[int, int]) -> tuple[_Ready, bool]:
        key = (kind, size, *(self.table[group] for group in GROUPS))
        made = key not in self._programs
        if made:
            while len(self._programs) >= MOST_PROGRAMS:
                self._programs.popitem(last=False)
            self._programs[key] = self._make(size)
        self._programs.move_to_end(key)
        return self._programs[key], made

    def _make(self, size: int | tuple[int, int]) -> _Ready:
        ops = Recorder(self.table, self.arena, self.fuse)
        if isinstance(size, int):
            self._record_decode(ops, size)
        else:
            self._record_prefill(ops, size)
        ready = _Ready(ops.program)
        if self.graphs and ops.program.capturable:
            self.rows.load([])
            self._load_chunks([], self.chunk)
            ready.capture()
        return ready


class _Ready:
    """A program, and its CUDA graph where it has one."""

    def __init__(self, program: Program):
        self.program = program
        self._graph: torch.cuda.CUDAGraph | None = None

    def capture(self) -> None:
        """On padding alone, so that warming up changes nothing."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):  # the first run compiles
                self.program.run()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self.program.run()

    def run(self) -> dict[str, torch.Tensor]:
        if self._graph is None:
            return self.program.run()
        self._graph.replay()
        return self.program.outputs
