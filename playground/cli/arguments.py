"""What is typed, as checked options. Whatever cannot be read raises EngineError with one line that says the remedy.

Whether a kernel has such a dim, dtype or config is not asked here but in the engine, which every door shares.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any, NoReturn

from pydantic import ValidationError

from playground.engine.messages import ConfigChoice, EngineError, Failure

VERBS = {
    "doctor": "what works here and what does not, and why",
    "kernels": "every kernel, with its dims, presets, dtypes and configs",
    "run": "run a kernel and judge it, and PyTorch, against float64",
    "bench": "time a kernel beside PyTorch, over a range of sizes with --over",
    "sweep": "try every config: resources, verdict and time",
    "compile": "generated code for a GPU that need not be here",
    "trace": "count the bytes that a kernel loads and stores, and find what lies out of bounds",
    "chat": "ask a decoder that runs on these kernels, and see what its KV cache holds",
    "record": "on a GPU: record every kernel into assets/recordings",
    "record-check": "list recordings that are stale or missing",
}
LARGEST = 2**63 - 1
MOST_STEPS = 64


def bad(argument: str, message: str) -> EngineError:
    return EngineError(Failure(kind="input", message=message, argument=argument))


def parse(words: list[str]) -> argparse.Namespace:
    """The options of one verb. `--json` may stand anywhere. Raises EngineError, or SystemExit(0) after --help."""
    verbs = ", ".join(VERBS)
    words = [word for word in words if word != "--json"]
    if words and words[0] in ("-h", "--help"):
        _parser().print_help()
        raise SystemExit(0)
    if not words:
        raise bad("verb", f"no verb is given; choose {verbs}")
    if words[0] not in VERBS:
        raise bad("verb", f"no verb is named {_quoted(words[0])}; choose {verbs}")
    return _parser().parse_args(words)


class _Parser(argparse.ArgumentParser):
    """Raises where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        found = re.match(r"argument ([^:]*): (.*)", message, re.DOTALL)
        argument = found[1].split("/")[-1].lstrip("-") if found else ""
        text = " ".join((found[2] if found else message).split())
        missing = re.match(r"the following arguments are required: (.*)", text)
        if missing:
            argument, text = missing[1].split(",")[0].lower(), f"{missing[1]} is missing"
        raise bad(argument, f"{text}; see {self.prog} --help" if "; " not in text else text)


def _parser() -> _Parser:
    parser = _Parser(prog="python -m playground", description="Triton kernels: right or wrong, how fast, and why.")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=_Parser)
    for name, does in VERBS.items():
        verb = verbs.add_parser(name, help=does, description=does, allow_abbrev=False)
        verb.add_argument("--json", action="store_true", help="print one JSON value and nothing else")
        verb.add_argument("--verbose", action="store_true", help="print what workers say to stderr")
        if name in ("run", "bench", "sweep", "compile", "trace"):
            _add_request(verb)
    _add_run(verbs.choices["run"])
    _add_bench(verbs.choices["bench"])
    _add_code(verbs.choices["sweep"], verbs.choices["compile"])
    _add_trace(verbs.choices["trace"])
    _add_chat(verbs.choices["chat"])
    verbs.choices["kernels"].add_argument("kernel", nargs="?", help="one kernel instead of all")
    record = verbs.choices["record"]
    record.add_argument("kernels", nargs="*", metavar="KERNEL", help="these kernels instead of all")
    record.add_argument("--out", help="the folder to write to instead of assets/recordings")
    record.add_argument("--seconds", type=_whole("seconds"), help="stop before this; run it again to go on")
    record.add_argument("--force", action="store_true", help="measure what is recorded already, too")
    record.add_argument("--warm", type=_whole("warm"), help="compile beforehand, in so many processes")
    record.add_argument("--sweeps", action="store_true", help="record sweeps over configs instead of benchmarks")
    record.add_argument("--check", action="store_true", help="the same as record-check")
    return parser


def _add_request(verb: argparse.ArgumentParser) -> None:
    add = verb.add_argument
    add("kernel", metavar="KERNEL", help="a name that `kernels` lists")
    add("--dims", type=_dims, default={}, help="sizes by name, e.g. rows=64,n=3000")
    add("--preset", help="sizes by the name of a preset, e.g. decode; --dims override it")
    add("--dtype", help="e.g. float32")
    add("--seed", type=_whole("seed"), default=0, help="of the inputs")
    add("--config", type=_config, help="e.g. BLOCK_N=4096,num_warps=8")
    add("--edge", help="an edge case, by name")
    add("--bug", help="a planted bug, by name")
    add("--device", default="auto", help="auto, cuda:0, cpu or interpreter")
    add("--baselines", type=_names, help="e.g. eager,torch.compile, or none; all that can run where left out")


def _add_run(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--checked", action=argparse.BooleanOptionalAction, help="on a CPU: check every load and store")


def _add_bench(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--over", type=_over, help="a range of one dim, e.g. n=256..16384")
    verb.add_argument("--steps", type=_whole("steps"), help="how many sizes --over has; doubling where left out")
    verb.add_argument("--quick", action="store_true", help="fewer repeats")


def _add_code(sweep: argparse.ArgumentParser, compile_: argparse.ArgumentParser) -> None:
    sweep.add_argument("--target", help="compile for this GPU alone, e.g. sm_90, and time nothing")
    sweep.add_argument("--timed", action="store_true", help="with --target: time on this device as well")
    compile_.add_argument("--target", default="sm_90", help="e.g. sm_80, sm_90, gfx942")
    compile_.add_argument("--stage", default="ptx", help="ttir, ttgir, llir, ptx, sass or amdgcn")


def _add_trace(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--programs", type=_programs, help="give these programs' accesses one by one, e.g. 0,63")
    limit = "seconds after which the rest of the grid is left out and sums are scaled; 20 where left out"
    verb.add_argument("--seconds", type=_whole("seconds"), default=20, help=limit)


def _add_chat(verb: argparse.ArgumentParser) -> None:
    add = verb.add_argument
    add("--prompt", required=True, help="what to ask")
    add("--system", default="", help="a system prompt before it")
    add("--backend", default="auto", help="auto, triton (on a CPU: compiled natively), interpreter or torch")
    add("--max-tokens", type=_whole("max-tokens"), default=64, help="the most tokens of the answer")
    add("--temperature", type=_real("temperature"), default=0.0, help="0 takes the likeliest token")
    add("--top-k", type=_whole("top-k"), default=0, help="draw from the k likeliest tokens; 0: from all")
    add("--top-p", type=_real("top-p"), default=1.0, help="draw from the likeliest tokens that make up this share")
    add("--seed", type=_whole("seed"), default=0, help="of the draws")
    add("--model", help="a folder or a hub name instead of SmolLM2-135M-Instruct")
    add("--kv-cache", default="auto", help="auto: in the model's dtype; int8 or fp8: in 8 bits, with scales")
    add("--full", default="stop", help="when the context is full: stop, or slide over the older half")
    add("--no-cache", action="store_true", help="compute the whole text anew for each token, to see what a cache saves")
    add("--probabilities", action="store_true", help="each token with its probability and the five likeliest")
    add("--swap", type=_table("swap"), default={}, help="chat with other kernels, e.g. norm=torch,rope=torch")
    add("--compare", type=_table("compare"), help="replay the answer with a swap: logits, KL, first other token")
    add("--attention", action="store_true", help="where the answer's last token looks: share of attention by page")
    add("--profile", action="store_true", help="afterwards: the time of each kernel in a decode step, and its shapes")


# Values. argparse shows the text of ArgumentTypeError as it is.


def _table(option: str) -> Callable[[str], dict[str, str]]:
    """norm=torch,rope=triton"""

    def parse(text: str) -> dict[str, str]:
        table = {}
        for part in text.split(","):
            group, _, provider = part.partition("=")
            if not group or provider not in ("triton", "torch"):
                said = f"{option} is {_quoted(part)}; it needs a kernel and triton or torch, such as norm=torch"
                raise bad(option, said)
            table[group] = provider
        return table

    return parse


def _quoted(text: str) -> str:
    """What was typed, cut where it is long."""
    return repr(text if len(text) <= 40 else text[:39] + "…")


def _number(name: str, text: str, example: str = "") -> int:
    example = example or f"{name}=64"
    try:
        value = int(text) if len(text) <= 40 else LARGEST + 1
    except ValueError:
        raise bad(name, f"{name} is {_quoted(text)}; it needs a whole number, such as {example}") from None
    if abs(value) > LARGEST:
        raise bad(name, f"{name} is {_quoted(text)}; it needs a whole number below 2^63")
    return value


def _whole(name: str) -> Callable[[str], int]:
    return lambda text: _number(name, text, f"--{name} 8")


def _real(name: str) -> Callable[[str], float]:
    def value(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise bad(name, f"{name} is {_quoted(text)}; it needs a number, such as --{name} 0.7") from None

    return value


def _pairs(option: str, text: str, example: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name:
            raise bad(option, f"--{option} has {_quoted(part)}; write a name and a number, such as {example}")
        if name in found:
            raise bad(name, f"{name} is given twice in --{option}; give it once")
        found[name] = _number(name, value)
    return found


def _dims(text: str) -> dict[str, int]:
    return _pairs("dims", text, "rows=64,n=3000")


def _config(text: str) -> ConfigChoice:
    numbers = _pairs("config", text, "BLOCK_N=4096,num_warps=8")
    fields = {name: numbers.pop(name) for name in ("num_warps", "num_stages") if name in numbers}
    try:
        return ConfigChoice(meta=numbers, **fields)
    except ValidationError as e:
        error = e.errors()[0]
        name = str(error["loc"][0])
        high = {"num_warps": 32, "num_stages": 10}[name]
        raise bad("config", f"{name} is {error['input']}; it needs to be from 1 to {high}") from None


def _programs(text: str) -> tuple[int, ...]:
    return tuple(_number("programs", part.strip(), "--programs 0,63") for part in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    """ "none" is eager alone, which always runs."""
    return () if text == "none" else tuple(part.strip() for part in text.split(",") if part.strip())


def _over(text: str) -> tuple[str, int, int]:
    found = re.fullmatch(r"\s*([^=\s]+)\s*=\s*([^.\s]+)\.\.([^.\s]+)\s*", text)
    if not found:
        raise bad("over", f"--over is {_quoted(text)}; write a dim and a range, such as n=256..16384")
    name, low, high = found[1], _number(found[1], found[2]), _number(found[1], found[3])
    if not 1 <= low <= high:
        raise bad("over", f"--over goes from {low} to {high}; it needs to rise from 1 or more, such as n=256..16384")
    return name, low, high


def sizes(low: int, high: int, steps: int | None) -> list[int]:
    """Sizes from low to high by equal factors, both ends included; by a factor of two where `steps` is None."""
    if steps is None:
        doubled = [low]
        while doubled[-1] * 2 <= high and len(doubled) < MOST_STEPS:
            doubled.append(doubled[-1] * 2)
        return doubled if doubled[-1] == high else [*doubled, high]
    if not 1 <= steps <= MOST_STEPS:
        raise bad("steps", f"steps is {steps}; it needs to be from 1 to {MOST_STEPS}")
    if steps == 1:
        return [low]
    factor = (high / low) ** (1 / (steps - 1))
    return sorted({low, high, *(round(low * factor**i) for i in range(1, steps - 1))})


def as_request(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of a Request that have been typed; the preset is looked up by whoever knows the kernel."""
    names = ("kernel", "dims", "dtype", "seed", "config", "edge", "bug", "device", "baselines")
    return {name: getattr(options, name) for name in names}
