"""Many launches on fixed tensors as one call, as a CUDA graph is on a GPU.

A decode step repeats hundreds of small launches whose arguments never change.
Here each is looked up and packed once, and all threads then go through the list
by themselves: nothing returns to Python in between, and nobody waits for a
thread that has not come to a launch yet, only for those at work on it.

    state: the number of steps, then for each step four 64-bit words:
        0  the address of its code       2  threads that have begun it
        1  the address of its job        3  threads that have ended it
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Sequence as List
from functools import lru_cache
from math import prod
from typing import Any

from . import cpu, launch, pool

_SPINS = 512  # looks at a step's end before the thread offers its CPU to another
_STEP_WORDS = 4
# Tells the CPU that this thread only waits, so that its twin on the same core gets on.
_IS_X86 = platform.machine().lower() in ("x86_64", "amd64")
_DECLARED, _PAUSE = (f"{word} void @llvm.x86.sse2.pause()" if _IS_X86 else "" for word in ("declare", "call"))


class Sequence:
    """Launches in order. Each sees what those before it have written. The tensors are kept, and must not move."""

    def __init__(self, launches: List[launch.Bound]):
        self._launches = tuple(launches)
        self._jobs = [ctypes.create_string_buffer(one.job, len(one.job)) for one in self._launches]
        words = [len(self._launches)]
        for one, job in zip(self._launches, self._jobs, strict=True):
            words += [one.kernel.address, ctypes.addressof(job), 0, 0]
        self._state = (ctypes.c_uint64 * len(words))(*words)
        self._address = ctypes.addressof(self._state)
        self._is_parallel = any(one.is_parallel for one in self._launches)
        self._rewind, self._play, self._entry = _functions()

    def __call__(self) -> None:
        address = self._address
        self._rewind(address)
        count = pool.threads()
        if self._is_parallel and count > 1:
            pool.parallel()(self._entry, ctypes.c_char_p(address), count)
        else:
            self._play(address)


def bind(kernel: Any, grid: tuple[int, ...], *args: Any) -> launch.Bound | None:
    """`kernel[grid](*args)` looked up and packed, for a Sequence.

    None where such a launch must be made by itself: its tensors are not on a CPU, or it takes descriptors, prints,
    asserts or is checked.
    """
    found = launch.resolve(kernel, args)
    if found is None or found[0].is_watched or prod(grid) == 0:
        return None
    compiled, values = found
    return launch.Bound.of(compiled, values, grid, args)


@lru_cache(maxsize=1)
def _functions() -> tuple[Any, Any, int]:
    """What readies a state for a run, what runs it, and that one's address for the pool."""
    host = cpu.host()
    rewind, play = host.load(host.object_code(_CODE), "rewind", "run")
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    return kind(rewind), kind(play), play


_CODE = f"""
declare i32 @sched_yield()
{_DECLARED}

define void @rewind(ptr %state) nounwind {{
  %count = load i64, ptr %state
  br label %head
head:
  %i = phi i64 [0, %0], [%following, %one]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %done
one:
  %first = mul i64 %i, {_STEP_WORDS}
  %word = add i64 %first, 1
  %step = getelementptr i64, ptr %state, i64 %word
  %p_job = getelementptr i64, ptr %step, i64 1
  %job = load ptr, ptr %p_job
  store i64 0, ptr %job
  %begun = getelementptr i64, ptr %step, i64 2
  store i64 0, ptr %begun
  %ended = getelementptr i64, ptr %step, i64 3
  store i64 0, ptr %ended
  %following = add i64 %i, 1
  br label %head
done:
  ret void
}}

define void @run(ptr %state) nounwind {{
  %count = load i64, ptr %state
  br label %head
head:
  %i = phi i64 [0, %0], [%following, %next]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %done
one:
  %first = mul i64 %i, {_STEP_WORDS}
  %word = add i64 %first, 1
  %step = getelementptr i64, ptr %state, i64 %word
  %code = load ptr, ptr %step
  %p_job = getelementptr i64, ptr %step, i64 1
  %job = load ptr, ptr %p_job
  %begun = getelementptr i64, ptr %step, i64 2
  %ended = getelementptr i64, ptr %step, i64 3
  %b = atomicrmw add ptr %begun, i64 1 seq_cst
  fence seq_cst
  call void %code(ptr %job)
  fence seq_cst
  %e = atomicrmw add ptr %ended, i64 1 seq_cst
  br label %look
look:
  %looks = phi i32 [0, %one], [%again, %wait], [0, %yield]
  %out = load atomic i64, ptr %ended seq_cst, align 8
  %in = load atomic i64, ptr %begun seq_cst, align 8
  %all = icmp eq i64 %in, %out
  br i1 %all, label %next, label %wait
wait:
  {_PAUSE}
  %again = add i32 %looks, 1
  %long = icmp eq i32 %again, {_SPINS}
  br i1 %long, label %yield, label %look
yield:
  %y = call i32 @sched_yield()
  br label %look
next:
  %following = add i64 %i, 1
  br label %head
done:
  ret void
}}
"""
