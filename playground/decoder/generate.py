"""A model ready to talk: loaded, with its cache, its batch and its tokenizer.

`Decoder` is what Python code uses and what the chat worker is made of. It is driven by whoever calls `step` (or
`chat` and `stream`, which do); it has no thread of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from playground.decoder import fetch, interpreted, launches, stats
from playground.decoder.answer import Answer
from playground.decoder.batch import Batch
from playground.decoder.cache import KVStore, PagePool
from playground.decoder.config import DecoderConfig, ModelError, read_config
from playground.decoder.conversation import Conversation, Emitted, Limits
from playground.decoder.messages import (
    INTERPRETER_NOTE,
    INTERPRETER_TOKENS,
    READING_NOTE,
    TAPES,
    ChatRequest,
    ChatResult,
    ChatToken,
    ModelFacts,
    WarmResult,
)
from playground.decoder.model import Model
from playground.decoder.ops import GROUPS
from playground.decoder.runner import Runner
from playground.decoder.sampler import Sampling
from playground.decoder.tokenizer import ChatTokenizer
from playground.decoder.weights import load_weights
from playground.engine import execute
from playground.engine.job import Job
from playground.engine.messages import Source

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
CACHE_DTYPES = DTYPES | {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
CACHE_SHARE = 0.25  # of the free memory, at most, for pages that nobody has asked for
INTERPRETER_CONTEXT = 512  # attention over more is split into programs, each of which numpy pays for
CACHE_TOKENS = 65_536  # in all of the pages, at most, where the number of pages is not given


@dataclass(frozen=True)
class Setup:
    """How a model is loaded. None takes what suits the device.

    model: a folder, a hub name, or None for the default. device: "auto", "cuda:0" or "cpu". dtype: float32 on a CPU,
    bfloat16 on a GPU. backend: "triton", "torch", or "interpreter" in a process that has TRITON_INTERPRET=1.
    cache_dtype: as the model's, or "int8" or "fp8". chunk: the most tokens prefilled between two decode steps.
    """

    model: str | None = None
    device: str = "auto"
    dtype: str | None = None
    backend: str = "auto"
    cache_dtype: str | None = None
    page_size: int = 16
    pages: int | None = None
    max_batch: int = 64
    max_context: int | None = None
    chunk: int | None = None
    graphs: bool | None = None


class Decoder:
    """A loaded model. Use `Decoder.load`; one thread at a time may drive it."""

    def __init__(self, setup: Setup, folder: Path, batch: Batch, tokenizer: ChatTokenizer, meter: stats.Meter):
        self.setup = setup
        self.folder = folder
        self.batch = batch
        self.tokenizer = tokenizer
        self.meter = meter

    @staticmethod
    def load(setup: Setup | None = None, say: fetch.Say = lambda line: None) -> Decoder:
        """Get the model's files if need be, and load them. Raises ModelError."""
        setup = _settled(setup or Setup())
        folder = fetch.find(setup.model, say=say)
        config = read_config(folder, setup.model or fetch.DEFAULT_MODEL)
        device = torch.device(setup.device)
        _wake(setup)
        weights = load_weights(folder, config, DTYPES[setup.dtype or "float32"], device)
        max_context = min(setup.max_context or config.max_context, config.max_context)
        pages = setup.pages or _pages(config, setup, max_context)
        store = KVStore(config, pages, setup.page_size, CACHE_DTYPES[setup.cache_dtype or "float32"], device)
        threading.Thread(target=store.reserve, name="reserve", daemon=True).start()
        model = Model(config, weights, store, max_context)
        runner = Runner(model, setup.page_size, setup.max_batch, setup.chunk or 64, setup.graphs)
        runner.swap(backend_table(setup.backend))
        meter = stats.Meter()
        batch = Batch(runner, PagePool(pages, setup.page_size), config.eos_ids, meter)
        if launches.INTERPRETED:  # a prompt of 40 tokens takes numpy a minute
            batch.reader = dict.fromkeys(GROUPS, "torch")
        return Decoder(setup, folder, batch, ChatTokenizer(folder), meter)

    @property
    def config(self) -> DecoderConfig:
        return self.batch.runner.model.config

    # Talking

    def submit(self, request: ChatRequest) -> Answer:
        """Put a request in the queue; `step` brings its tokens. Raises ModelError."""
        messages = [message.model_dump() for message in request.messages]
        self.allow(request.table)
        tokens = self.tokenizer.encode_chat(messages)
        sampling = Sampling(request.temperature, request.top_k, request.top_p, request.seed)
        keep = len(self.tokenizer.encode_chat(messages[:1], False)) if messages[0]["role"] == "system" else 0
        most, notes = _at_most(request.max_tokens)
        limits = Limits(most, request.full, keep, request.cache, request.alternatives)
        return Answer(self, request, self.batch.submit(tokens, sampling, limits, request.owner, request.table), notes)

    def allow(self, table: Mapping[str, str]) -> None:
        """Make the process ready for what a table asks for. Raises ModelError for what cannot be swapped here."""
        for group in table:
            if group not in GROUPS:
                raise ModelError(f"there is no group of operations named {group!r}; there are {', '.join(GROUPS)}")
        if launches.INTERPRETED and not TAPES and table.get("linear") == "triton":
            raise ModelError("before Triton 3.7 the interpreter takes minutes for linear layers: leave them to torch")
        if "triton" in table.values():
            _wake(replace(self.setup, backend="triton"))

    def step(self) -> list[Emitted]:
        """One step of the batch. Gradients are never wanted here."""
        with torch.no_grad():
            return self.batch.step()

    def stream(self, messages: Sequence[Mapping[str, str]], **options: object) -> Iterator[ChatToken | ChatResult]:
        """Tokens as they come, then the result. options: the fields of ChatRequest."""
        answer = self.submit(ChatRequest.model_validate({"messages": tuple(messages), **options}))
        while answer.conversation.finish is None:
            for event in self.step():
                if event.conversation is answer.conversation and event.token is not None:
                    yield answer.token(event)
        yield answer.result()

    def chat(self, messages: Sequence[Mapping[str, str]] | str, **options: object) -> ChatResult:
        """The whole answer to a conversation, or to one question given as a string."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        *_, result = self.stream(messages, **options)
        assert isinstance(result, ChatResult)
        return result

    def warm(self) -> None:
        """Make what the first answer needs: kernels compiled, a prefill and a decode program recorded.

        The interpreter compiles nothing, so there it does nothing.
        """
        if launches.INTERPRETED:
            return
        runner = self.batch.runner
        if runner.model.device.type == "cpu" and self.backend() == "triton":
            # The kernels are machine code once the programs are made; reading a prompt would add half a second.
            for count in (runner.chunk, 1):
                runner.prepare_prefill(count)
            with torch.no_grad():
                runner.rehearse("decode", 1)
            self.batch.reload()
            return
        tokens = [0] * min(runner.chunk, self.batch.max_context - 2)
        for prompt in (tokens, tokens[:1]):
            conversation = self.batch.submit(prompt, limits=Limits(max_tokens=2))
            while conversation.finish is None:
                self.step()
        self.batch.pool.drop_cached()
        self.meter.forget()

    def rehearsals(self) -> Iterator[str]:
        """Make the programs of further prompt lengths and of several conversations, one before each line it gives.

        To be driven while nothing else runs. In the interpreter, which compiles nothing, only the step of one answer:
        its first time costs as much as ten others.
        """
        runner = self.batch.runner
        for kind, size in runner.likely()[: 1 if launches.INTERPRETED else None]:
            runner.swap(self.batch.table)
            with torch.no_grad():
                runner.rehearse(kind, size)
            self.batch.reload()
            what = f"{size} at once" if isinstance(size, int) else f"prompts of {size[0]} tokens, {size[1]} at once"
            yield f"made ready: {what}"

    def source(self) -> Source:
        """Where this decoder's figures come from, now."""
        return execute.source(Job(self.batch.runner.model.device, launches.INTERPRETED))

    def facts(self, seconds: float) -> WarmResult:
        """What stands ready, for a page that opens. seconds: what it took."""
        config, model = self.config, self.batch.runner.model
        weights = model.weights
        shape = ModelFacts(
            **{name: getattr(config, name) for name in ModelFacts.model_fields if hasattr(config, name)}
            | {"max_context": self.batch.max_context},
            parameters=sum(tensor.numel() for tensor in weights.tensors()),
            weight_bytes=weights.nbytes,
            dtype=str(weights.embedding.dtype).removeprefix("torch."),
            cache_dtype=str(model.store.keys.dtype).removeprefix("torch."),
        )
        table = dict(self.batch.table)
        return WarmResult(seconds=seconds, model=shape, backend=self.backend(), table=table, source=self.source())

    def backend(self, conversation: Conversation | None = None) -> str:
        """Which backend runs now: "torch", "interpreter", "triton", or "mixed" where kernels have been swapped."""
        table = self.batch.table_of(conversation) if conversation else self.batch.table
        for name in ("torch", "interpreter" if launches.INTERPRETED else "triton"):
            if table == backend_table(name):
                return name
        return "mixed"


def backend_table(backend: str) -> dict[str, str]:
    """Every group of operations by one backend.

    Where the interpreter has no tapes it leaves matrix products to PyTorch: numpy would take minutes for a token.
    """
    table = dict.fromkeys(GROUPS, "torch" if backend == "torch" else "triton")
    return table | {"linear": "torch"} if launches.INTERPRETED and not TAPES else table


def _at_most(max_tokens: int | None) -> tuple[int | None, list[str]]:
    """The most tokens of an answer here, and what is to be said where that is less than was asked for."""
    if not launches.INTERPRETED:
        return max_tokens, []
    if max_tokens is not None and max_tokens <= INTERPRETER_TOKENS:
        return max_tokens, [READING_NOTE]
    return INTERPRETER_TOKENS, [READING_NOTE, INTERPRETER_NOTE]


def _settled(setup: Setup) -> Setup:
    """Every "auto" and None that depends on the host decided. Raises ModelError for what cannot be."""
    device = setup.device
    if device == "auto":
        device = "cuda:0" if torch.cuda.is_available() and not launches.INTERPRETED else "cpu"
    on_gpu = device.startswith("cuda")
    dtype = setup.dtype or ("bfloat16" if on_gpu else "float32")
    cache_dtype = setup.cache_dtype or dtype
    for name, value, known in (
        ("dtype", dtype, DTYPES),
        ("cache_dtype", cache_dtype, CACHE_DTYPES),
        ("backend", setup.backend, ("auto", "triton", "interpreter", "torch")),
    ):
        if value not in known:
            raise ModelError(f"{name} is {value!r}; choose one of {', '.join(known)}")
    if setup.backend == "interpreter" and not launches.INTERPRETED:
        raise ModelError("the interpreter needs a process of its own: set TRITON_INTERPRET=1 before Python starts")
    if launches.INTERPRETED and setup.max_context is None:
        setup = replace(setup, max_context=INTERPRETER_CONTEXT)
    return replace(
        setup, device=device, dtype=dtype, cache_dtype=cache_dtype, chunk=setup.chunk or (512 if on_gpu else 64)
    )


def _wake(setup: Setup) -> None:
    """Make the process ready to launch kernels on CPU tensors, where that is what it will do."""
    if launches.INTERPRETED:
        interpreted.wake()
    elif setup.device == "cpu" and setup.backend != "torch":
        from playground import native

        native.enable()


def _pages(config: DecoderConfig, setup: Setup, max_context: int) -> int:
    """Pages for max_batch whole contexts, within CACHE_TOKENS and CACHE_SHARE; one whole context at least."""
    from playground.engine import host

    size = CACHE_DTYPES[setup.cache_dtype or "float32"].itemsize
    page_bytes = config.kv_bytes_per_token(size) * setup.page_size
    one = -(-max_context // setup.page_size)
    room = int(host.available_bytes(torch.device(setup.device)) * CACHE_SHARE) // page_bytes
    return max(one, min(one * setup.max_batch, room, CACHE_TOKENS // setup.page_size))
