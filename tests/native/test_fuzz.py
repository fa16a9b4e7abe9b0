"""Sixty random kernels agree with the interpreter; `make fuzz` runs thousands."""

from . import fuzz

COUNT = 60


def test_random_kernels_agree_with_the_interpreter(tmp_path):
    agreed, findings = fuzz.fuzz(list(range(COUNT)), tmp_path)
    assert not findings
    assert agreed > COUNT * 0.9  # the interpreter itself could run nearly all of them


def test_a_wrong_answer_is_a_finding():
    import torch

    right = torch.ones(4)
    assert fuzz.compare(right, right) is None
    assert fuzz.compare(right + 0.01, right)
    assert fuzz.compare(torch.full((4,), float("nan")), right)
    assert fuzz.compare("Unsupported", right)
