"""How a sweep's figures come about, one click beside them. Pure text."""

from __future__ import annotations

from playground.engine.sweep_messages import SweepResult
from playground.ui.tabs.run import method

TIED = (
    "Best, tied",
    "The best has the least median. Another is tied where its p20–p80 and the best's share a time: then no ranking is "
    "sure, and to repay the sweep nothing was won.",
)
COSTS = (
    "Registers, spills, shared memory, occupancy",
    "Of the kernel compiled for the GPU chosen above, as its assembler reports them: on this device they need not be "
    "the same. Of several launches, the one that spills or holds most.",
)
FIRST_CALL = ("First call", "From asking for the kernel until its first result, compiling included.")


def how(result: SweepResult) -> str:
    """How the configs were judged, timed and ranked."""
    parts = [method.JUDGED]
    timed = dict.fromkeys(c.method for c in result.configs if c.method in method.TIMED)
    parts += [(f"{name[0].upper()}{name[1:]}", f"{method.TIMED[name]} {method.SPREAD}") for name in timed]
    parts += [TIED] if timed or any(c.recorded_us for c in result.configs) else []
    parts += [FIRST_CALL] if any(c.first_seconds for c in result.configs) else []
    parts += [COSTS] if any(c.registers is not None for c in result.configs) else []
    return method.details("How configs are judged, timed and ranked", parts)
