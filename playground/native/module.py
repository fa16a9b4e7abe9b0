"""A whole kernel as LLVM text: its functions, and the driver that runs programs.

`run(job)` is what a thread calls. A job is an array of 64-bit words that all
threads of a launch share:

    0  the next program to run, taken in turn    4  the report, or null
    1  how many programs there are               5... the kernel's arguments
    2  how many a thread takes at a time         then, in checked mode, for each
    3  grid x and y, 32 bits each                pointer: first byte, size
"""

from __future__ import annotations

from . import amx
from .bounds import REPORT
from .control import COMMON_ARGUMENTS
from .emit import Reg
from .ir import Function, Module
from .layout import FIRST_ARGUMENT, Program, Target, memory_type, register_type
from .lower import Lowering

ATTRIBUTES = (
    'attributes #0 = { nounwind "no-trapping-math"="true" "prefer-vector-width"="512" "min-legal-vector-width"="512" }'
)


def lower_module(module: Module, target: Target, checked: bool) -> tuple[str, Program]:
    program = Program()
    symbols: dict[str, str] = {}

    def callee(name: str) -> str:
        if name not in symbols:
            symbols[name] = f"callee{len(symbols)}"
            _function(module, module.functions[name], symbols[name], target, program, checked, callee)
        return symbols[name]

    _function(module, module.entry, "program", target, program, checked, callee)
    parts = [*sorted(program.declarations), *program.constants, *program.functions]
    if program.sites:
        parts.append(REPORT)
    parts += [_driver(module.entry, program), ATTRIBUTES]
    return "\n".join(parts) + "\n", program


def _function(module, function: Function, symbol, target, program, checked, callee) -> None:
    lo = Lowering(module, target, program, checked)
    lo.callee = callee
    lo.b.may_use_arena = function.is_public
    parameters = []
    for i, value in enumerate(function.args):
        value.reg = Reg(f"%arg{i}", register_type(value.type.element))
        parameters.append(value.reg.typed)
    parameters += [f"ptr %out{i}" for i in range(len(function.return_types))]
    parameters += COMMON_ARGUMENTS + (["ptr noalias %arena"] if function.is_public else [])
    lo.prefix = "bb_"
    lo.function(function)
    if function.is_public:
        program.arena_bytes = lo.b.arena_bytes
    body = ["slots:", *lo.b.allocas, "  br label %entry", "entry:", *lo.b.lines]
    program.functions.append(
        f"define internal void @{symbol}({', '.join(parameters)}) #0 {{\n" + "\n".join(body) + "\n}"
    )


def _driver(entry: Function, program: Program) -> str:
    """Takes programs from the job until none is left."""
    loads, passed = [], []
    for i, value in enumerate(entry.args):
        memory, elem = memory_type(value.type.element), register_type(value.type.element)
        loads.append(f"  %at{i} = getelementptr i64, ptr %job, i64 {FIRST_ARGUMENT + i}")
        loads.append(f"  %raw{i} = load {memory}, ptr %at{i}")
        if elem == "i1":
            loads.append(f"  %bit{i} = trunc i8 %raw{i} to i1")
        passed.append(f"{elem} %{'bit' if elem == 'i1' else 'raw'}{i}")
    passed += [*COMMON_ARGUMENTS, "ptr %arena"]
    size = program.arena_bytes
    tiles, begin_tiles, end_tiles = amx.configure() if program.uses_tiles else ("", "", "")
    return tiles + _DRIVER.format(
        begin_tiles=begin_tiles,
        end_tiles=end_tiles,
        loads="\n".join(loads),
        arguments=", ".join(passed),
        arena=f"call ptr @aligned_alloc(i64 64, i64 {size})" if size else "inttoptr i64 0 to ptr",
        skip=_SKIP if program.sites else _NO_SKIP,
        free="call void @free(ptr %arena)" if size else "",
    )


_NO_SKIP = "  br label %work"
# After a fault only earlier programs still matter: one of them may have a fault too.
_SKIP = """  %p_report = getelementptr i64, ptr %job, i64 4
  %report = load ptr, ptr %p_report
  %p_seen = getelementptr i64, ptr %report, i64 1
  %seen = load atomic i64, ptr %p_seen monotonic, align 8
  %clean = icmp eq i64 %seen, 0
  %early = icmp ult i64 %p, %seen
  %wanted = or i1 %clean, %early
  br i1 %wanted, label %work, label %done"""
_DRIVER = """
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
define void @run(ptr %job) #0 {{
  %p_count = getelementptr i64, ptr %job, i64 1
  %count = load i64, ptr %p_count
  %p_chunk = getelementptr i64, ptr %job, i64 2
  %chunk = load i64, ptr %p_chunk
  %p_grid_x = getelementptr i32, ptr %job, i64 6
  %grid_x = load i32, ptr %p_grid_x
  %p_grid_y = getelementptr i32, ptr %job, i64 7
  %grid_y = load i32, ptr %p_grid_y
  %plane = mul i32 %grid_x, %grid_y
  %plane_wide = zext i32 %plane to i64
  %depth = udiv i64 %count, %plane_wide
  %grid_z = trunc i64 %depth to i32
{loads}
  %arena = {arena}
  {begin_tiles}
  br label %take
take:
  %first = atomicrmw add ptr %job, i64 %chunk monotonic
  %some = icmp slt i64 %first, %count
  br i1 %some, label %begin, label %finish
begin:
  %stop = add i64 %first, %chunk
  %short = icmp slt i64 %stop, %count
  %end = select i1 %short, i64 %stop, i64 %count
  br label %next
next:
  %p = phi i64 [%first, %begin], [%following, %done]
{skip}
work:
  %p32 = trunc i64 %p to i32
  %pid_x = urem i32 %p32, %grid_x
  %yz = udiv i32 %p32, %grid_x
  %pid_y = urem i32 %yz, %grid_y
  %pid_z = udiv i32 %yz, %grid_y
  call void @program({arguments})
  br label %done
done:
  %following = add i64 %p, 1
  %more = icmp slt i64 %following, %end
  br i1 %more, label %next, label %take
finish:
  {end_tiles}
  {free}
  ret void
}}"""
