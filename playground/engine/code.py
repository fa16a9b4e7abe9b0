"""Generated code for the page and the command line: every stage of every launch, with the way back to its Python."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Sequence
from pathlib import Path

from kernels.spec import InputError, Launch, Target
from playground.engine import choose, compile, edits, findings, occupancy, ptxas
from playground.engine.code_messages import STAGES, CodeFinding, CodeRequest, CodeResult, CodeRow, LaunchCode
from playground.engine.compile import Compiled
from playground.engine.job import Job
from playground.engine.listing import Row, listing, sass_listing
from playground.engine.messages import EngineError, Failure

_NO_STAGE = "it is written in Gluon, which begins at ttgir"


def code(request: CodeRequest, job: Job) -> CodeResult:
    """The handler of `code`. Raises InputError, and EngineError where the target refuses the kernel."""
    began = time.perf_counter()
    target = choose.target_named(request.target)
    wanted = _stages(request, target)
    chosen = choose.validate(request, gpu=True)
    with edits.edited(chosen.spec, chosen.bug, request.source) as spec:
        inputs = choose.meta_inputs(spec, chosen)
        choose.need_support(spec, chosen.dtype, target)
        config, origin = choose.choose_config(spec, request, inputs, target, chosen.dims, chosen.dtype)
        plan, config = choose.planned(spec, inputs, config, target)
        launches = []
        for launch in plan.launches:
            job.progress(f"compiling {compile.kernel_name(launch)} for {target.arch}")
            built = compile.compile_or_explain(launch, target, spec, edited=request.source is not None)
            if request.stages is not None:
                _need_stages(built, wanted)
            launches.append(_launch(launch, built, target, wanted))
        return CodeResult(
            choice=choose.as_choice(request, chosen, config, origin),
            target=target.arch,
            launches=tuple(launches),
            source=compile.source(target),
            seconds=time.perf_counter() - began,
        )


def _stages(request: CodeRequest, target: Target) -> tuple[str, ...]:
    have = tuple(s for s in STAGES if s not in (("amdgcn",) if target.kind == "cuda" else ("ptx", "sass")))
    for stage in request.stages or ():
        if stage not in have:
            raise InputError(f"{target.arch} has no stage {stage!r}; choose {', '.join(have)}", "stage")
    return request.stages or have


def _need_stages(built: Compiled, wanted: Sequence[str]) -> None:
    """A page that shows every stage says in the stage's place that there is none; who asks for it is refused."""
    for stage in wanted:
        if stage != "sass" and stage not in built.stages:
            message = f"{built.name} has no {stage}: {_NO_STAGE}; choose another stage"
            raise EngineError(Failure(kind="unavailable", message=message, argument="stage"))


def _launch(launch: Launch, built: Compiled, target: Target, wanted: Sequence[str]) -> LaunchCode:
    stages = {stage: rows_of(built, stage) for stage in wanted}
    python, first_line = source_of(launch)
    held = occupancy.occupancy(target.arch, built.num_warps, built.registers, built.shared_bytes)
    return LaunchCode(
        kernel=built.name,
        file=Path(built.source_file).name,
        python=python,
        first_line=first_line,
        stages={stage: tuple(map(_row, rows)) for stage, rows in stages.items()},
        findings=tuple(CodeFinding(**f._asdict()) for f in findings.find(stages)),
        resources=compile.resources_of(built, target),
        occupancy=held.occupancy,
        programs_per_sm=held.blocks,
        limit=held.limit,
        grid=launch.grid,
    )


def _row(row: Row) -> CodeRow:
    """Not validated: there are tens of thousands, and the page checks them when they arrive."""
    return CodeRow.model_construct(text=row.text, lines=row.lines)


def rows_of(built: Compiled, stage: str) -> list[Row]:
    """One stage's lines, each with the Python lines it came from."""
    if stage == "sass":
        return _sass(built.stages["ptx"], built.fuses, built.source_file)
    if stage not in built.stages:
        return [Row(f"// no {stage}: {_NO_STAGE}", ())]
    return listing(stage, built.stages[stage], built.source_file)


@functools.lru_cache(maxsize=64)
def _sass(ptx: str, fuses: bool, source_file: str) -> list[Row]:
    """Two tools and most of the time of a compilation: kept for the next time the same code is looked at."""
    return sass_listing(ptx, lambda numbered: ptxas.assemble(numbered, fuses)[0], source_file)


def source_of(launch: Launch) -> tuple[tuple[str, ...], int]:
    """The Python of the kernel and of the jit functions of its file that it calls, as one run of lines, and where
    it begins."""
    file = launch.kernel.fn.__code__.co_filename
    spans = []
    for function in _called(launch.kernel):
        if function.fn.__code__.co_filename == file:
            lines, start = inspect.getsourcelines(function.fn)
            spans.append((start, start + len(lines)))
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    text = Path(file).read_text().splitlines()
    return tuple(text[first - 1 : last - 1]), first


def _called(kernel) -> list:
    """The kernel and every jit function that it reaches by name."""
    found: list = []
    queue = [kernel]
    while queue:
        function = queue.pop()
        if any(function is f for f in found):
            continue
        found.append(function)
        names = function.fn.__code__.co_names
        values = (function.fn.__globals__.get(name) for name in names)
        queue += [v for v in values if type(v) is type(kernel)]
    return found
