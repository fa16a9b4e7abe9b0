"""What other warps and blocks would change: the kernel compiled offline for the chosen GPU in several configs.

This asks the engine and knows no Gradio.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from playground.engine.code_messages import CodeRequest, CodeResult
from playground.engine.messages import ConfigChoice, EngineError, Progress, Request
from playground.ui.answer import ask
from playground.ui.context import Context
from playground.ui.tabs.memory.facts import Facts
from playground.ui.tabs.memory.occupancy import Trial

WARPS = (1, 2, 4, 8, 16)
SCALES = (0.5, 1, 2)  # of the block size that decides
Trials = dict[tuple[str, int], Trial]


def key_of(config: ConfigChoice) -> tuple[str, int]:
    """The row and column of a config."""
    return ", ".join(f"{name} {value}" for name, value in config.meta.items()) or "no block", config.num_warps


def configs(chosen: ConfigChoice) -> list[ConfigChoice]:
    """The chosen config with its last block size halved and doubled, each with every number of warps."""
    names = list(chosen.meta)
    blocks = [chosen.meta]
    if names:
        last = names[-1]
        blocks = [{**chosen.meta, last: max(1, int(chosen.meta[last] * scale))} for scale in SCALES]
    return [chosen.model_copy(update={"meta": dict(meta), "num_warps": warps}) for meta in blocks for warps in WARPS]


def try_all(context: Context, facts: Facts, cancel: threading.Event) -> Iterator[tuple[Progress, Trials]]:
    """Each step's progress and what is known by then. Raises EngineError once it is stopped."""
    assert facts.code is not None
    wanted = configs(facts.code.choice.config)
    trials: Trials = {}
    for done, config in enumerate(wanted):
        yield Progress(what=f"Compiling for {facts.gpu.arch}", done=done, total=len(wanted), unit="configs"), trials
        trials[key_of(config)] = _try(context, facts.request, facts.gpu.arch, config, cancel)
    yield Progress(what="Compiled", done=len(wanted), total=len(wanted), unit="configs"), trials


def _try(context: Context, request: Request, arch: str, config: ConfigChoice, cancel: threading.Event) -> Trial:
    asked = ask(CodeRequest, request, target=arch, stages=("ttir",), config=config)
    try:
        *_, result = context.engine.stream(asked, cancel)
    except EngineError as error:
        if error.failure.kind == "cancelled":
            raise
        return Trial(config.label, config.num_warps, failure=str(error))
    if not isinstance(result, CodeResult) or not result.launches:
        return Trial(config.label, config.num_warps, failure="no kernel is launched")
    launch = max(result.launches, key=lambda one: one.resources.registers)
    used = launch.resources
    return Trial(
        label=f"{launch.kernel}, {config.label}",
        warps=config.num_warps,
        registers=used.registers,
        spills=used.spills,
        shared=used.shared_bytes,
        programs=launch.programs_per_sm or 0,
        occupancy=launch.occupancy or 0.0,
        limit=launch.limit,
    )
