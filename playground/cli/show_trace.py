"""How `trace` is read: the sums, a line for each load and store, and what lies out of bounds."""

from __future__ import annotations

from playground.cli import show
from playground.engine.trace_messages import Access, TraceResult


@show.text.register
def _trace(result: TraceResult) -> str:
    choice = result.choice
    dims = ", ".join(f"{name}={value:,}" for name, value in choice.dims.items())
    header = ("line", "", "tensor", "bytes", "sectors", "used", "lanes", "masked", "code")
    rows = [_row(access) for access in result.accesses]
    misses = [miss.message for miss in result.out_of_bounds]
    asked = result.bytes_loaded + result.bytes_stored
    sums = (
        f"{result.bytes_loaded:,} bytes loaded and {result.bytes_stored:,} stored, {asked:,} in all; "
        f"{result.unique_bytes:,} of them distinct; {result.compulsory_bytes:,} is the least (modelled)\n"
        f"{result.sectors:,} sectors of 32 bytes; {result.masked_share:.1%} of the lanes are masked"
    )
    parts = (
        f"{choice.kernel}  {dims}  {choice.dtype}\n{choice.config.label}",
        f"{'OUT OF BOUNDS' if misses else 'in bounds'}, {result.source.kind} on {result.source.device}\n",
        sums + "\n",
        show.table(header, rows, right=(0, 3, 4, 5, 6, 7)) if rows else "Nothing is launched.",
        *misses,
        result.note,
    )
    return "\n".join(part for part in parts if part)


def _row(access: Access) -> tuple[str, ...]:
    return (
        str(access.line),
        access.kind,
        access.tensor,
        f"{access.bytes:,}",
        f"{access.sectors:,}",
        f"{access.efficiency:.0%}",
        f"{access.lanes:,}",
        f"{1 - access.active / access.lanes:.0%}" if access.lanes else "",
        access.code,
    )
