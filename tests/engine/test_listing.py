"""Generated code leads back to its Python: the load, the reduction and the store in every stage, and what is found."""

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.compiler import make_backend

from playground.engine.findings import find
from playground.engine.listing import listing, sass_listing


@triton.jit
def squared(x):
    return x * x  # HELPER


@triton.jit
def norm(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)  # LOAD
    y = squared(x)  # CALL
    total = tl.sum(y, axis=0)  # REDUCE
    tl.store(out_ptr + i, x / total, mask=i < n)  # STORE


def line(mark):
    with open(__file__) as file:
        return next(n for n, text in enumerate(file, 1) if text.rstrip().endswith(f"# {mark}"))


def compiled(target):
    aligned = [["tt.divisibility", 16]]
    source = ASTSource(
        norm,
        {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        constexprs={(3,): 2048},
        attrs={(0,): aligned, (1,): aligned, (2,): aligned},
    )
    kernel = triton.compile(source, target=target, options={"num_warps": 4})
    stages = [name for name in ("ttir", "ttgir", "llir", "ptx", "amdgcn") if name in kernel.asm]
    rows = {name: listing(name, kernel.asm[name], __file__) for name in stages}
    if "ptx" in stages:
        rows["sass"] = sass_listing(kernel.asm["ptx"], lambda ptx: assemble(ptx, kernel, target), __file__)
    return rows


def assemble(ptx, kernel, target):
    return make_backend(target).make_cubin(ptx, {}, kernel.metadata, target.arch)


@pytest.fixture(scope="module")
def hopper():
    return compiled(GPUTarget("cuda", 90, 32))


@pytest.fixture(scope="module")
def mi300():
    return compiled(GPUTarget("hip", "gfx942", 64))


def lines_of(rows, *words):
    found = [row.lines for row in rows if any(word in row.text for word in words)]
    assert found, f"no row has any of {words}"
    return found


KNOWN = [
    ("ttir", "LOAD", "tt.load"),
    ("ttir", "REDUCE", '"tt.reduce"'),
    ("ttir", "STORE", "tt.store"),
    ("ttgir", "LOAD", "tt.load"),
    ("ttgir", "REDUCE", '"tt.reduce"'),
    ("ttgir", "STORE", "tt.store"),
    ("llir", "LOAD", "ld.global"),
    ("llir", "REDUCE", "= tail call i32 @llvm.nvvm.shfl"),
    ("llir", "STORE", "st.global"),
    ("ptx", "LOAD", "ld.global"),
    ("ptx", "REDUCE", "shfl.sync"),
    ("ptx", "STORE", "st.global"),
    ("sass", "LOAD", "LDG"),
    ("sass", "REDUCE", "SHFL"),
    ("sass", "STORE", "STG"),
]


@pytest.mark.parametrize(("stage", "mark", "word"), KNOWN)
def test_known_lines_on_hopper(hopper, stage, mark, word):
    assert all(line(mark) in lines for lines in lines_of(hopper[stage], word))


KNOWN_ON_AMD = [
    ("ttir", "LOAD", "tt.load"),
    ("ttir", "REDUCE", '"tt.reduce"'),
    ("ttir", "STORE", "tt.store"),
    ("ttgir", "LOAD", "buffer_load"),
    ("ttgir", "REDUCE", '"tt.reduce"'),
    ("ttgir", "STORE", "buffer_store"),
    ("llir", "LOAD", "= tail call <4 x float> @llvm.amdgcn.raw.ptr.buffer.load"),
    ("llir", "REDUCE", "= tail call float @llvm.amdgcn.update.dpp"),
    ("llir", "STORE", "call void @llvm.amdgcn.raw.ptr.buffer.store"),
    ("amdgcn", "LOAD", "buffer_load"),
    ("amdgcn", "REDUCE", "_dpp"),
    ("amdgcn", "STORE", "buffer_store"),
]


@pytest.mark.parametrize(("stage", "mark", "word"), KNOWN_ON_AMD)
def test_known_lines_on_amd(mi300, stage, mark, word):
    assert all(line(mark) in lines for lines in lines_of(mi300[stage], word))


def test_an_inlined_function_keeps_both_its_lines(hopper):
    both = (line("HELPER"), line("CALL"))
    for stage in ("ttir", "ttgir", "llir", "ptx", "sass"):
        assert both in [row.lines for row in hopper[stage]], stage


def test_library_lines_and_debug_data_are_left_out(hopper, mi300):
    with open(__file__) as file:
        last = len(file.readlines())
    for stages in (hopper, mi300):
        for rows in stages.values():
            assert all(1 <= n <= last for row in rows for n in row.lines)
    assert not any(".loc" in row.text or "debug_str" in row.text for row in hopper["ptx"])


def test_findings_lead_to_lines(hopper):
    by_claim = {finding.claim: finding for finding in find(hopper)}
    loads = by_claim["16-byte loads"]
    assert loads.lines == (line("LOAD"),)
    assert all("ld.global.v4" in hopper["ptx"][row].text for row in loads.rows)
    assert by_claim["A reduction by shuffle"].lines == (line("REDUCE"),)
    assert "Scalar loads" not in by_claim


def test_findings_on_amd(mi300):
    claims = {finding.claim for finding in find(mi300)}
    assert {"16-byte loads", "16-byte stores", "LDS"} <= claims


def test_a_block_too_small_for_vectors_is_said_to_load_scalars():
    source = ASTSource(
        norm,
        {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        constexprs={(3,): 128},
    )
    asm = triton.compile(source, target=GPUTarget("cuda", 80, 32), options={"num_warps": 4}).asm
    claims = {f.claim for f in find({"ptx": listing("ptx", asm["ptx"], __file__)})}
    assert "Scalar loads" in claims


def test_numbering_the_places_changes_no_instruction():
    target = GPUTarget("cuda", 90, 32)
    source = ASTSource(
        norm, {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}, constexprs={(3,): 512}
    )
    kernel = triton.compile(source, target=target, options={"num_warps": 4})
    rows = sass_listing(kernel.asm["ptx"], lambda ptx: assemble(ptx, kernel, target), __file__)
    plain = sass_listing(kernel.asm["ptx"], lambda ptx: kernel.asm["cubin"], __file__)
    assert [row.text for row in rows] == [row.text for row in plain]
