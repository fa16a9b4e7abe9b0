"""docs/engine.ipynb runs from its first cell to its last, in a process of its own, and says what its text promises."""

import json
import subprocess
import sys

from tests.project.source import ROOT


def test_the_notebook_runs():
    cells = json.loads((ROOT / "docs" / "engine.ipynb").read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    ran = subprocess.run([sys.executable, "-"], input=code, capture_output=True, text=True, timeout=240, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr[-2000:]
    difference, refused, right, wrong, loaded, *targets = ran.stdout.splitlines()
    assert float(difference.split()[-1]) < 1e-5 and refused.startswith("residual |")
    assert "| right |" in right and "| wrong |" in wrong and "first wrong at" in wrong
    # x, residual and weight in float32 are read, the sum and the answer written.
    row, rows = 4 * 3000, 8
    assert (
        loaded == f"loaded {3 * rows * row:,} B, stored {2 * rows * row:,} B, the least is {(4 * rows + 1) * row:,} B"
    )
    assert [line.split(":")[0] for line in targets[:2]] == ["sm_90", "gfx942"]
    assert all("registers" in line for line in targets)
