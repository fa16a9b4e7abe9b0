"""The Code tab tells how its code and figures come about, and what to look at."""

import html

from playground.engine.code_messages import CodeFinding
from playground.ui.tabs.code import method, view
from tests.ui.memory_samples import code


def test_how_code_is_made_is_told_for_its_target():
    nvidia, amd = (html.unescape(method.how(code(target=target))) for target in ("sm_90", "gfx942"))
    assert "ptxas -v on this PTX" in nvidia and "nvdisasm" in nvidia
    assert "AMD's ISA guides" in amd and "nvdisasm" not in amd


def test_amds_multiprocessors_are_cus():
    assert "A CU holds 32 programs" in view.banner(code(target="gfx942"))
    assert "An SM holds 32 programs" in view.banner(code(target="sm_90"))


def test_the_heading_names_the_first_findings_each_once():
    found = [CodeFinding(claim=claim, plain="", stage="ptx", rows=(0,), lines=(1,)) for claim in "AABC"]
    (launch,) = code().launches
    result = code().model_copy(update={"launches": (launch.model_copy(update={"findings": tuple(found)}),)})
    assert view.found(result) == "What to look at: A, B" and view.found(code()) == "What to look at"
