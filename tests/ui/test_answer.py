"""How an answer grows, what ends it, and that no time ever stands beside a wrong one."""

import threading

import pytest

from playground.engine.messages import (
    BenchRequest,
    BenchResult,
    EngineError,
    Failure,
    HostRequest,
    Progress,
    ResourcesRequest,
    Roofs,
    RunRequest,
)
from playground.ui import sweep
from playground.ui.answer import answers
from playground.ui.tabs.run import view
from playground.ui.tabs.run.sheet import draw
from tests.ui.fake_engine import HERE, FakeEngine
from tests.ui.samples import REQUEST, answer, every_answer


def test_the_verdict_comes_before_the_times():
    steps = every_answer()
    first = next(i for i, step in enumerate(steps) if step.run)
    assert steps[first].bench is None and steps[first].progress is not None
    assert [s.bench is not None for s in steps[first:]] == sorted(s.bench is not None for s in steps[first:])
    last = steps[-1]
    assert last.right and last.timed and last.resources and last.recorded and last.progress is None


def test_the_verdict_waits_for_no_other_implementation():
    engine = FakeEngine()
    answer(engine, baselines=("torch.compile",))
    asked = {type(r): r for r in engine.asked}
    assert asked[RunRequest].baselines == () and asked[BenchRequest].baselines == ("torch.compile",)


@pytest.mark.parametrize("choice", [{"bug": "Mean over the block"}, {"edge": "One row"}])
def test_cases_are_judged_and_not_timed(choice):
    engine = FakeEngine()
    found = answer(engine, **choice)
    assert found.bench is None and found.recorded is None and found.timed is None
    assert not any(isinstance(r, BenchRequest) for r in engine.asked)


def test_a_wrong_verdict_after_the_benchmark_takes_its_times_away():
    found = answer()
    spoiled = found.bench.model_copy(update={"ok": False})
    late = type(found)(**{**found.__dict__, "bench": spoiled})
    assert not late.right and late.timed is None


def test_code_is_compiled_for_the_gpu_that_is_recorded_or_here():
    cpu, gpu = FakeEngine(), FakeEngine(gpu=True)
    for engine in (cpu, gpu):
        answer(engine)
        assert [r.target for r in engine.asked if isinstance(r, ResourcesRequest)] == ["sm_90"]
    assert answer(gpu).recorded is None  # a GPU's own times need no recording beside them


def test_what_is_recorded_in_another_dtype_is_named():
    class BfloatAlone(FakeEngine):
        def recorded(self, request):
            return super().recorded(request) if request.dtype == "bfloat16" else []

    assert answer(BfloatAlone()).unrecorded == "Nothing is recorded in float32; bfloat16 is. Choose it as dtype."
    assert answer(BfloatAlone(), dtype="bfloat16").unrecorded == ""


class NoRoofsYet(FakeEngine):
    """Times come without roofs; these are measured when they are asked for."""

    def __init__(self, fails: bool = False):
        super().__init__()
        self.fails = fails

    def stream(self, request, cancel):
        if isinstance(request, HostRequest):
            assert request.roofs
            yield Progress(what="measuring copy bandwidth")
            if self.fails:
                raise EngineError(Failure(kind="cancelled", message="stopped"))
            yield self.host().model_copy(update={"roofs": Roofs(copy_gbps=9.0, source=HERE)})
            return
        for event in super().stream(request, cancel):
            if isinstance(event, BenchResult) and not request.roofs:
                bare = {n: p.model_copy(update={"share_of_peak": None}) for n, p in event.providers.items()}
                event = event.model_copy(update={"providers": bare, "roofs": None, "floor_us": 0.0})
            yield event


def test_times_wait_for_no_roof_and_get_their_shares_when_it_is_measured():
    engine = NoRoofsYet()
    steps = list(answers(engine, REQUEST, engine.host(), threading.Event()))
    first = next(s for s in steps if s.timed)
    assert first.timed.roofs is None and first.timed.providers["triton"].us and first.progress
    waiting = next(s for s in steps if s.progress and s.progress.what == "measuring copy bandwidth")
    assert "…" in view.banner(waiting) and "Measuring copy bandwidth, for the share" in draw(waiting, engine.host())[3]
    own = steps[-1].timed.providers["triton"]
    assert own.share_of_peak == pytest.approx(steps[-1].timed.floor_us / own.us.p50) and own.share_of_peak > 0
    assert own.us == first.timed.providers["triton"].us
    assert "of copy roof" in view.banner(steps[-1]) and "…" not in view.banner(steps[-1])


def test_times_stand_alone_where_the_roofs_cannot_be_measured():
    found = answer(NoRoofsYet(fails=True))
    assert found.timed.providers["triton"].us and found.untimed == "" and found.progress is None
    assert "of copy roof" not in view.banner(found) and view.bars(found.timed) and view.why(found)


def test_a_host_that_cannot_time_says_why_and_keeps_the_verdict():
    class NoTimes(FakeEngine):
        def stream(self, request, cancel):
            if isinstance(request, BenchRequest):
                raise EngineError(Failure(kind="unavailable", message="no GPU here; run on one"))
            yield from super().stream(request, cancel)

    found = answer(NoTimes())
    assert found.right and found.bench is None and found.untimed == "no GPU here; run on one"


@pytest.mark.parametrize("kind", ["input", "crashed", "timeout", "failed", "unavailable"])
def test_a_failure_ends_the_answer(kind):
    class Fails(FakeEngine):
        def stream(self, request, cancel):
            raise EngineError(Failure(kind=kind, message="why"))
            yield

    found = answer(Fails())
    assert found.failure.kind == kind and found.run is None and found.progress is None


def test_stop_ends_the_answer_at_once():
    engine, cancel = FakeEngine(pause=threading.Event()), threading.Event()
    steps = answers(engine, REQUEST, engine.host(), cancel)
    next(steps), next(steps)
    cancel.set()
    assert list(steps)[-1].failure.kind == "cancelled"


# Sweeps


def test_a_sweep_times_each_size_and_says_how_far_it_is():
    steps = list(sweep.sweeps(FakeEngine(), REQUEST, "rows", (1, 8, 64), threading.Event()))
    assert [p.choice.dims["rows"] for p in steps[-1].points] == [1, 8, 64]
    assert {s.progress.total for s in steps if s.progress} == {3} and steps[-1].progress is None


def test_a_stopped_sweep_keeps_what_it_has():
    cancel = threading.Event()
    kept = None
    for now in sweep.sweeps(FakeEngine(), REQUEST, "rows", (1, 8, 64), cancel):
        kept = now
        if len(now.points) == 2:
            cancel.set()
    assert len(kept.points) == 2 and kept.progress is None and "Stopped after 2 of 3" in kept.notes[-1]


def test_sizes_are_powers_of_two_within_what_the_host_moves_in_time():
    import kernels

    for name, spec in kernels.all_kernels().items():
        request = REQUEST.model_copy(update={"kernel": name, "dims": dict(spec.default), "dtype": spec.dtypes[0]})
        for engine, limits in ((FakeEngine(), sweep.CPU_LIMITS), (FakeEngine(gpu=True), sweep.GPU_LIMITS)):
            found = sweep.sizes(spec, request, engine.host())
            assert 1 <= len(found) <= limits[2] and list(found) == sorted(set(found)), name
            dims = {**request.dims, spec.sweep_dim: found[-1]}
            cost = spec.cost(spec.inputs(dims, request.dtype, "meta"))
            assert len(found) == 1 or (cost.bytes_moved <= limits[0] and cost.flops <= limits[1]), name


def test_the_recorded_sweep_differs_in_the_swept_dim_alone():
    import kernels

    found = sweep.recorded(FakeEngine(), kernels.get("add_rms_norm"), REQUEST)
    assert len(found) > 5 and len({r.choice.dims["n"] for r in found}) == 1
    rows = [r.choice.dims["rows"] for r in found]
    assert rows == sorted(set(rows))
