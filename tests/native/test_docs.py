"""docs/native.md is true to the code: its example runs, its files and settings exist."""

import re
from pathlib import Path

from playground.native import registry
from playground.native.cpu import host
from playground.native.lowerings import lower_module
from playground.native.parse import parse_module

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "native.md").read_text()
SOURCES = {path.name: path.read_text() for path in (ROOT / "playground" / "native").glob("*.py")}

TTIR = """
module {
  tt.func public @kernel(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>) attributes {noinline = false} {
    %i = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %xs = tt.splat %x : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %ys = tt.splat %y : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %px = tt.addptr %xs, %i : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    %py = tt.addptr %ys, %i : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    %a = tt.load %px : tensor<64x!tt.ptr<f32>>
    %b = tt.load %py : tensor<64x!tt.ptr<f32>>
    %d = example.absdiff %a, %b : tensor<64xf32>
    tt.store %py, %d : tensor<64x!tt.ptr<f32>>
    tt.return
  }
}
"""


def test_the_example_adds_an_operation():
    import ctypes
    import struct

    import torch

    example = next(block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "absdiff" in block)
    exec(example, {})
    try:
        text, _ = lower_module(parse_module(TTIR), host().target, False)
    finally:
        del registry.EXPRESSIONS["example.absdiff"], registry.COSTS["example.absdiff"]
    x, y = torch.randn(64), torch.randn(64)
    wanted = (x - y).abs()
    run = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(*host().load(host().object_code(text), "run"))
    run(struct.pack("=qqqiiQQQ", 0, 1, 1, 1, 1, 0, x.data_ptr(), y.data_ptr()))
    assert torch.equal(y, wanted)


def test_every_file_named_exists_and_every_file_is_named_or_plain():
    named = set(re.findall(r"`(\w+\.py)`", PAGE))
    assert named <= set(SOURCES), named - set(SOURCES)
    assert set(SOURCES) - named <= {"__init__.py", "errors.py", "layout.py", "driver.py", "module.py"}


def test_every_setting_is_in_the_table():
    read = set(re.findall(r"PLAYGROUND_NATIVE_\w+", "\n".join(SOURCES.values())))
    assert read == set(re.findall(r"`(PLAYGROUND_NATIVE_\w+)`", PAGE))


def test_every_function_fits_a_screen_and_every_file_a_head():
    import ast

    for name, text in SOURCES.items():
        assert len(text.splitlines()) <= 400, name
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno <= 60, f"{name}: {node.name}"
