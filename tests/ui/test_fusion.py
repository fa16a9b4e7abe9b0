"""What fusing saves: bytes of eager's chain by hand, and each time with the source it comes from."""

from dataclasses import replace

import pytest
import torch

from playground.engine.compile import resources
from playground.engine.job import Job
from playground.engine.messages import ResourcesRequest, Times
from playground.ui.tabs.run import fusion
from tests.ui.samples import answer
from tests.ui.test_view import plain


def test_eagers_bytes_are_those_of_its_steps():
    """silu_mul: silu reads the gate and writes, mul reads that and up and writes: 5 transfers, and 3 when fused."""
    request = ResourcesRequest(kernel="silu_mul", dims={"rows": 8, "n": 1024}, dtype="float32", chain=True)
    found = resources(request, Job(torch.device("cpu")))
    assert found.eager_kernels == ("silu", "mul") and found.eager_bytes == 5 * 8 * 1024 * 4
    assert fusion.least_bytes(found) == 3 * 8 * 1024 * 4 and fusion.chained(found)
    assert resources(request.model_copy(update={"chain": False}), Job(torch.device("cpu"))).eager_kernels == ()


def test_the_sheet_says_bytes_and_times_each_with_its_source():
    found = answer()
    shown = plain(fusion.sheet(found))
    least = 4 * (4 * 64 * 3000 + 3000)  # x, residual, out, new_residual and the weight, float32
    assert shown.startswith(f"Fusing moves {least / 1e6:.2f} MB instead of 6.00 MB")
    assert "Eager runs 3 kernels (add, rsqrt, mul)" in shown and "Watch the bytes travel in Memory" in shown
    assert f"Bytes through memory: {6e6 / least:.1f} times less modelled" in shown
    assert "Time on Test CPU: 3.6 times less measured" in shown and "Time on NVIDIA H200: " in shown
    assert 'data-tab="Memory"' in fusion.sheet(found)


def test_on_a_busy_host_it_is_not_said_how_much_faster():
    found = answer()
    busy = found.bench.model_copy(update={"note": "the host was busy (load 9.1 on 2 cores): these times are noisy"})
    assert "Time on Test CPU: a busy host cannot say measured" in plain(fusion.sheet(replace(found, bench=busy)))


def test_no_faster_is_claimed_within_the_noise():
    found = answer()
    eager = found.bench.providers["eager"].model_copy(update={"us": Times(p20=1.0, p50=9e3, p80=1e4)})
    providers = {**found.bench.providers, "eager": eager}
    noisy = replace(found, bench=found.bench.model_copy(update={"providers": providers}))
    assert "Time on Test CPU: too close to say" in plain(fusion.sheet(noisy))


@pytest.mark.parametrize(
    "change",
    [{"eager_kernels": ("add",)}, {"eager_bytes": 100}, {"eager_kernels": ("mul", "bmm", "softmax")}],
    ids=["one kernel", "nothing saved", "eager has a kernel of its own for it"],
)
def test_where_fusing_saves_nothing_nothing_is_said(change):
    found = answer()
    assert fusion.sheet(replace(found, resources=found.resources.model_copy(update=change))) == ""
    assert fusion.sheet(answer(bug="Mean over the block")) == ""
