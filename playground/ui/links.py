"""A choice as the query of a link, and back. What a link carries is checked as if a person had typed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from kernels import InputError, KernelSpec, all_kernels
from playground.engine import choose
from playground.engine.messages import ConfigChoice, Request

LONGEST = 400  # characters of one value; a longer one was not made by this page


@dataclass(frozen=True)
class Link:
    """The choice that a link restores, and why something in it was left out ("" where nothing was)."""

    request: Request
    problem: str = ""


def first_choice(spec: KernelSpec, gpu: bool = False) -> Request:
    """What the form holds before anything is chosen: a shape that this host answers at once."""
    dims = spec.presets["prefill"] if gpu and "prefill" in spec.presets else spec.default
    return Request(kernel=spec.name, dims=dict(dims), dtype=spec.dtypes[0])


def config_key(config: ConfigChoice | None) -> str:
    """A config in a link and in the list: BLOCK_N=4096,num_warps=8,num_stages=3; None is auto."""
    if config is None:
        return "auto"
    parts = {**config.meta, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return ",".join(f"{name}={value}" for name, value in parts.items())


def config_from(key: str | None) -> ConfigChoice | None:
    """The config of a key. Raises InputError where it is none."""
    if not key or key == "auto":
        return None
    try:
        numbers = {name: int(value) for name, value in (part.split("=") for part in key.split(","))}
        warps, stages = numbers.pop("num_warps", 4), numbers.pop("num_stages", 3)
        return ConfigChoice(meta=numbers, num_warps=warps, num_stages=stages)
    except ValueError:
        raise InputError(f"config is {key[:60]!r}; choose one from the list, or auto", "config") from None


def query(request: Request) -> dict[str, str]:
    """The parameters of a link, without those that hold what is meant anyway."""
    made = {"kernel": request.kernel, **{name: str(size) for name, size in request.dims.items()}}
    made |= {"dtype": request.dtype or "", "seed": str(request.seed), "config": config_key(request.config)}
    made |= {"edge": request.edge or "", "bug": request.bug or ""}
    made["baselines"] = "" if request.baselines is None else ",".join(request.baselines) or "none"
    meant = {"seed": "0", "config": "auto"}
    return {name: value for name, value in made.items() if value and value != meant.get(name)}


def address(request: Request) -> str:
    return "?" + urlencode(query(request))


def whole(given: object, name: str) -> int:
    """A whole number. Raises InputError that says what was given and how to mend it."""
    text = "" if given is None else str(given).strip()[:40]
    if not text:
        raise InputError(f"{name} is empty; set {name} to a whole number", name)
    if text.removeprefix("-").isdecimal():
        return int(text)
    try:
        value = float(text)
        if value == int(value):
            return int(value)
    except (ValueError, OverflowError):
        raise InputError(f"{name} is {text!r}; set {name} to a whole number", name) from None
    raise InputError(f"{name} must be whole, and it is {text}; set {name} to a whole number", name)


def restore(params: Mapping[str, str], start: Request, gpu: bool = False) -> Link:
    """The choice of a link. What cannot be used is left at its first value, and the first such is named."""
    given = {name: value[:LONGEST] for name, value in params.items() if value}
    problem = ""
    while given.get("kernel"):
        try:
            request = _read(given)
            chosen = choose.validate(request, gpu)
            filled = request.model_copy(update={"dims": chosen.dims, "dtype": chosen.dtype})
            return Link(filled, problem)
        except InputError as error:
            problem = problem or str(error)
            if given.pop(error.argument, None) is None:
                break
    return Link(start, problem)


def _read(given: Mapping[str, str]) -> Request:
    dims = {}
    spec = all_kernels().get(given["kernel"])
    for dim in spec.dims if spec else ():
        if dim.name in given:
            dims[dim.name] = whole(given[dim.name], dim.name)
    asked = given.get("baselines")
    names = None if asked is None else tuple(n for n in asked.split(",") if n != "none")
    return Request(
        kernel=given["kernel"], dims=dims, dtype=given.get("dtype"), seed=whole(given.get("seed", 0), "seed"),
        config=config_from(given.get("config")), edge=given.get("edge"), bug=given.get("bug"), baselines=names,
    )  # fmt: skip
