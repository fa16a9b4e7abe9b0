"""What programs may call: functions with types and documentation, over Gradio's API and as MCP tools.

They answer with compact dicts; a request that ends without a result answers with one clear line in `error`.
"""

# No postponed annotations here: Gradio reads the types of these functions for its schemas.
import json
from collections.abc import Callable
from typing import Any

import gradio as gr

from kernels import InputError
from playground.engine.messages import (
    BenchRequest,
    BenchResult,
    EngineError,
    OutputVerdict,
    Request,
    RunRequest,
    RunResult,
)
from playground.engine.trace_messages import TraceRequest, TraceResult
from playground.ui.answer import ask
from playground.ui.api import chat, code
from playground.ui.api.call import as_call, stop
from playground.ui.context import Context
from playground.ui.links import config_from, whole

LIMIT = 16  # calls at a time; the engine takes one after another for each device


class Endpoints:
    """The functions, each an endpoint of its own name."""

    def __init__(self, context: Context):
        self.context = context

    def list_kernels(self) -> list[dict[str, Any]]:
        """List every Triton kernel with its dims, presets, dtypes, edge cases and planted bugs.

        Returns:
            One entry for each kernel; `presets` gives named shapes as {dim: size}.
        """
        return [
            {
                "name": s.name, "title": s.title, "doc": s.doc, "dims": {d.name: d.doc for d in s.dims},
                "default": dict(s.default), "presets": {k: dict(v) for k, v in s.presets.items()},
                "dtypes": list(s.dtypes), "edges": [e.name for e in s.edges], "bugs": [b.name for b in s.bugs],
            }
            for s in self.context.specs.values()
        ]  # fmt: skip

    def run_kernel(
        self,
        kernel: str,
        dims: dict[str, int] | None = None,
        dtype: str = "",
        seed: int = 0,
        config: str = "auto",
        edge: str = "",
        bug: str = "",
    ) -> dict[str, Any]:
        """Run a Triton kernel and judge its answer against PyTorch in float64.

        Args:
            kernel: a name that list_kernels gives, such as add_rms_norm
            dims: sizes by name, such as {"rows": 64, "n": 3000}; those left out have their default
            dtype: one of the kernel's dtypes; empty for the kernel's first
            seed: of the inputs' random values
            config: auto, or e.g. BLOCK_N=4096,num_warps=8,num_stages=3
            edge: name of an edge case, or empty
            bug: name of a planted bug, or empty

        Returns:
            ok, outputs (ok, error, bar, ulps and, where wrong, the first wrong index), the choice and the source; or
            error with one line.
        """
        return _answer(self.context, RunRequest, kernel, dims, dtype, seed, config, edge, bug)

    def bench_kernel(
        self, kernel: str, dims: dict[str, int] | None = None, dtype: str = "", seed: int = 0, config: str = "auto"
    ) -> dict[str, Any]:
        """Time a Triton kernel beside PyTorch eager and the other implementations that are installed.

        Args:
            kernel: a name that list_kernels gives, such as add_rms_norm
            dims: sizes by name, such as {"rows": 64, "n": 3000}; those left out have their default
            dtype: one of the kernel's dtypes; empty for the kernel's first
            seed: of the inputs' random values
            config: auto, or e.g. BLOCK_N=4096,num_warps=8,num_stages=3

        Returns:
            For each provider its median time in microseconds with p20 and p80, bandwidth, throughput, share of the
            measured peak and speed-up against eager, with the source of the figures; or error with one line.
        """
        return _answer(self.context, BenchRequest, kernel, dims, dtype, seed, config)

    def trace_kernel(
        self,
        kernel: str,
        dims: dict[str, int] | None = None,
        dtype: str = "",
        config: str = "auto",
        edge: str = "",
        bug: str = "",
    ) -> dict[str, Any]:
        """Count the bytes that a Triton kernel loads and stores, and find accesses out of bounds.

        Args:
            kernel: a name that list_kernels gives, such as add_rms_norm
            dims: sizes by name, such as {"rows": 64, "n": 3000}; those left out have their default
            dtype: one of the kernel's dtypes; empty for the kernel's first
            config: auto, or e.g. BLOCK_N=4096,num_warps=8,num_stages=3
            edge: name of an edge case, or empty
            bug: name of a planted bug, or empty

        Returns:
            bytes_loaded, bytes_stored, unique_bytes, compulsory_bytes, sectors (of 32 bytes), masked_share,
            out_of_bounds, accesses (one for each line and tensor), the choice and the source; or error with one line.
        """
        return _answer(self.context, TraceRequest, kernel, dims, dtype, 0, config, edge, bug)


def add(context: Context, over: Callable[[str], None] = lambda session: None) -> None:
    """Register the endpoints in the Blocks that is being built. over: told the session of each call as it ends."""
    own = Endpoints(context)
    functions: list[Callable[..., Any]] = [own.list_kernels, own.run_kernel, own.bench_kernel, own.trace_kernel]
    functions += [*code.endpoints(context, _request, _guarded), *chat.endpoints(context, _guarded)]
    for function in functions:
        called = as_call(function, context.jobs, over)
        gr.api(called, api_name=function.__name__, concurrency_limit=LIMIT, concurrency_id="api")


def _answer(
    context: Context, verb: type[Request], kernel: str, dims: Any, dtype: str, seed: Any, config: str, edge: str = "",
    bug: str = "",
) -> dict[str, Any]:  # fmt: skip
    def answer() -> dict[str, Any]:
        result = context.engine.run(ask(verb, _request(kernel, dims, dtype, seed, config, edge, bug)), stop())
        if isinstance(result, TraceResult):
            return _trace(result)
        return _run(result) if isinstance(result, RunResult) else _bench(result)

    return _guarded(answer)


def _request(kernel: str, dims: Any, dtype: str, seed: Any, config: str, edge: str = "", bug: str = "") -> Request:
    """What was passed, whatever its type, as a request. Raises InputError."""
    dtype, config, edge, bug = (str(given or "") for given in (dtype, config, edge, bug))
    sizes = {name: whole(value, name) for name, value in _object(dims).items()}
    return Request(
        kernel=str(kernel), dims=sizes, dtype=dtype or None, seed=whole(seed, "seed"), config=config_from(config),
        edge=edge or None, bug=bug or None,
    )  # fmt: skip


def _guarded(answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The answer, or why there is none, in one line."""
    try:
        return answer()
    except InputError as error:
        return {"error": {"kind": "input", "message": str(error), "argument": error.argument}}
    except EngineError as error:
        return {"error": error.failure.model_dump()}


def _object(text: Any) -> dict[str, Any]:
    try:
        found = text if isinstance(text, dict) else json.loads(text or "{}")
    except (TypeError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError(f'dims is {str(text)[:60]!r}; pass an object such as {{"rows": 64, "n": 3000}}', "dims")
    return found


def _plain(message: Any) -> Any:
    """A message as plain data, without what is empty; NaN and infinities are words."""
    return {k: v for k, v in json.loads(message.model_dump_json()).items() if v not in (None, "", [], {})}


def _run(result: RunResult) -> dict[str, Any]:
    outputs = {name: _verdict(v) for name, v in result.outputs.items()}
    found = {"ok": result.ok, "outputs": outputs, "choice": _plain(result.choice), "source": _plain(result.source)}
    if result.out_of_bounds:
        found["out_of_bounds"] = _plain(result.out_of_bounds)
    failure = result.providers["triton"].failure if "triton" in result.providers else None
    more = {"note": result.note, "failure": failure}
    return found | {k: v for k, v in more.items() if v}


def _verdict(verdict: OutputVerdict) -> dict[str, Any]:
    plain = _plain(verdict)
    found = {name: plain[name] for name in ("ok", "error", "bar", "ulps") if name in plain}
    if "wrong" in plain:
        found["first_wrong"] = {k: plain["wrong"][k] for k in ("index", "got", "expected", "count", "total")}
    return found


def _trace(result: TraceResult) -> dict[str, Any]:
    """The sums and the lines; what each program touched is for the page's map."""
    keep = (
        "exact", "bytes_loaded", "bytes_stored", "unique_bytes", "compulsory_bytes", "sectors", "masked_share",
        "out_of_bounds", "accesses", "choice", "source", "note",
    )  # fmt: skip
    return json.loads(result.model_dump_json(include=set(keep)))


def _bench(result: BenchResult) -> dict[str, Any]:
    keep = ("ok", "us", "method", "gbps", "tflops", "share_of_peak", "speedup", "ulps", "missing", "failure")
    providers = {name: {k: v for k, v in _plain(p).items() if k in keep} for name, p in result.providers.items()}
    return {
        "ok": result.ok, "providers": providers, "bound": result.bound, "floor_us": result.floor_us,
        "bytes_moved": result.bytes_moved, "flops": result.flops, "choice": _plain(result.choice),
        "source": _plain(result.source),
    }  # fmt: skip
