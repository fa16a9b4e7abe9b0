"""The API's endpoints for generated code and for sweeps over configs; see api for how they answer."""

# No postponed annotations here: Gradio reads the types of these functions for its schemas.
from collections.abc import Callable
from typing import Any

from playground.engine.code_messages import STAGES, CodeRequest, LaunchCode
from playground.engine.messages import EngineError, Failure, Request
from playground.engine.sweep_messages import SweepRequest, SweepResult
from playground.ui.answer import ask
from playground.ui.api.call import stop
from playground.ui.context import Context

AsRequest = Callable[..., Request]


def endpoints(context: Context, as_request: AsRequest, guarded: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    """compile_kernel and sweep_kernel. as_request makes a Request of what was passed; guarded turns what it raises into
    an answer."""
    return _compile_kernel(context, as_request, guarded), _sweep_kernel(context, as_request, guarded)


def _compile_kernel(context: Context, as_request: AsRequest, guarded: Callable[..., Any]) -> Callable[..., Any]:
    def compile_kernel(
        kernel: str,
        target: str = "sm_90",
        stage: str = "ptx",
        dims: dict[str, int] | None = None,
        dtype: str = "",
        config: str = "auto",
    ) -> dict[str, Any]:
        """Compile a Triton kernel for a GPU that need not be here, and read one stage of its code.

        Args:
            kernel: a name that list_kernels gives, such as add_rms_norm
            target: sm_75 to sm_120, gfx90a, gfx942, gfx950 or gfx1100
            stage: ttir, ttgir, llir, ptx, sass or amdgcn
            dims: sizes by name, such as {"rows": 64, "n": 3000}; those left out have the prefill shape's
            dtype: one of the kernel's dtypes; empty for the kernel's first
            config: auto, or e.g. BLOCK_N=4096,num_warps=8,num_stages=3

        Returns:
            launches, each with code, lines, registers, spills, shared_bytes, occupancy and findings (what to look at,
            with the Python lines it came from); or error with one line.
        """

        def answer() -> dict[str, Any]:
            request = ask(
                CodeRequest, as_request(kernel, dims, dtype, 0, config), target=str(target), stages=(_stage(stage),)
            )
            result = context.engine.run(request, stop())
            return {
                "target": result.target, "stage": stage, "launches": [_launch(one, stage) for one in result.launches],
                "source": result.source.model_dump(),
            }  # fmt: skip

        return guarded(answer)

    return compile_kernel


def _sweep_kernel(context: Context, as_request: AsRequest, guarded: Callable[..., Any]) -> Callable[..., Any]:
    def sweep_kernel(
        kernel: str, target: str = "sm_90", dims: dict[str, int] | None = None, dtype: str = "", timed: bool = True
    ) -> dict[str, Any]:
        """Try every config of a Triton kernel: verdict, time on this device, and resources for a target.

        Args:
            kernel: a name that list_kernels gives, such as softmax
            target: the GPU that resources are compiled for, such as sm_90 or gfx942
            dims: sizes by name, such as {"rows": 64, "n": 3000}; those left out have their default
            dtype: one of the kernel's dtypes; empty for the kernel's first
            timed: whether to run and time each config on this device

        Returns:
            configs (config, ok, us, registers, spills, shared_bytes, occupancy, or failure), best and default as
            positions, speedup of the best against the default, and the sources; or error with one line.
        """

        def answer() -> dict[str, Any]:
            request = ask(
                SweepRequest, as_request(kernel, dims, dtype, 0, "auto"), target=str(target), timed=bool(timed)
            )
            *_, result = context.engine.sweep(request, stop())
            assert isinstance(result, SweepResult)
            return _sweep(result)

        return guarded(answer)

    return sweep_kernel


def _stage(stage: str) -> str:
    if stage not in STAGES:
        message = f"no stage is named {str(stage)[:40]!r}; choose {', '.join(STAGES)}"
        raise EngineError(Failure(kind="input", message=message, argument="stage"))
    return stage


def _launch(launch: LaunchCode, stage: str) -> dict[str, Any]:
    rows = launch.stages[stage]
    return {
        "kernel": launch.kernel, "code": "\n".join(row.text for row in rows), "lines": len(rows),
        "registers": launch.resources.registers, "spills": launch.resources.spills,
        "shared_bytes": launch.resources.shared_bytes, "occupancy": launch.occupancy,
        "findings": [{"claim": f.claim, "plain": f.plain, "python_lines": f.lines} for f in launch.findings],
    }  # fmt: skip


def _sweep(result: SweepResult) -> dict[str, Any]:
    keep = {"ok", "registers", "spills", "shared_bytes", "occupancy", "failure", "refusal", "method"}
    configs = [
        {"config": c.config.label, "us": c.us.p50 if c.us else None, **c.model_dump(include=keep)}
        for c in result.configs
    ]
    return {
        "configs": [{k: v for k, v in c.items() if v not in (None, "")} for c in configs], "best": result.best,
        "default": result.default, "speedup": result.speedup, "seconds": result.seconds, "target": result.target,
        "source": result.source.model_dump() if result.source else None,
        "compiled": result.compiled.model_dump() if result.compiled else None,
    }  # fmt: skip
