"""A sweep tries every config, keeps what failed with its reason, and crowns only right answers."""

import threading
import time

import pytest

from kernels.spec import Config, InputError, Target
from playground.engine import choose, sweep
from playground.engine.messages import (
    BenchRequest,
    BenchResult,
    ConfigChoice,
    EngineError,
    Failure,
    ProviderBench,
    Resources,
    ResourcesResult,
    Roofs,
    Source,
    Times,
)
from playground.engine.sweep_messages import ConfigResult, SweepRequest, SweepResult

HERE = Source(kind="measured", device="a test", date="2026-01-01")


class Door:
    """Answers by the number of warps: `us` has the time, or why there is none."""

    compilers = 2

    def __init__(self, us, recorded=()):
        self.us, self.recorded, self.asked = us, recorded, []

    def run(self, request, cancel=None):
        self.asked.append(request)
        warps = request.config.num_warps
        choice = choose.as_choice(request, choose.validate(request), request.config, "given")
        if not isinstance(request, BenchRequest):
            used = Resources(
                kernel="k", target=request.target, registers=8 * warps, spills=0, shared_bytes=0, num_warps=warps
            )
            return ResourcesResult(choice=choice, launches=(used,), source=HERE)
        outcome = self.us[warps]
        if isinstance(outcome, Failure):
            raise EngineError(outcome)
        own = outcome
        if isinstance(outcome, float):
            times = Times(p20=outcome, p50=outcome, p80=outcome)
            own = ProviderBench(ok=True, us=times, method="cold L2", cold_us=times, ulps=0.5)
        return BenchResult(
            ok=own.ok, choice=choice, providers={"triton": own}, bytes_moved=1, flops=1, bound="memory", floor_us=1.0,
            roofs=Roofs(copy_gbps=1.0, source=HERE), source=HERE,
        )  # fmt: skip

    def recorded_sweeps(self, request):
        return self.recorded


def configs(*warps):
    return tuple(ConfigChoice(meta={"BLOCK": 1024}, num_warps=w) for w in warps)


def swept(door, *warps, here="sm_90", **fields):
    request = SweepRequest(kernel="vector_add", dims={"n": 4096}, configs=configs(*warps), **fields)
    return list(sweep.sweep(door, request, choose.validate(request), Target.named(here), threading.Event()))


def results(door, *warps, **fields):
    return [item for item in swept(door, *warps, **fields) if isinstance(item, SweepResult)]


WRONG = ProviderBench(ok=False, failure="out: wrong, so not timed", ulps=1e6)
HUNG = Failure(kind="timeout", message="took longer than 60 s")


def test_the_fastest_right_config_wins_and_a_fast_wrong_one_does_not():
    last = results(Door({1: 9.0, 2: WRONG, 4: 5.0}), 1, 2, 4)[-1]
    assert last.done and last.best == 2
    assert [c.ok for c in last.configs] == [True, False, True]
    assert last.configs[1].us is None and "wrong" in last.configs[1].failure


def test_a_config_that_hangs_is_a_line_and_the_sweep_goes_on():
    last = results(Door({1: HUNG, 2: 3.0}), 1, 2)[-1]
    assert last.configs[0].failure == "took longer than 60 s" and last.best == 1


def test_a_stop_keeps_what_was_found():
    stop = Failure(kind="cancelled", message="stopped")
    seen = []
    with pytest.raises(EngineError):
        for item in _each(Door({1: 4.0, 2: stop}), 1, 2):
            seen.append(item)
    kept = [item for item in seen if isinstance(item, SweepResult)][-1]
    assert not kept.done and kept.best == 0 and not kept.configs[1].tried


def _each(door, *warps):
    request = SweepRequest(kernel="vector_add", dims={"n": 4096}, configs=configs(*warps))
    return sweep.sweep(door, request, choose.validate(request), Target.named("sm_90"))


def test_speed_and_pay_back_are_against_the_default():
    own = sweep.listed(SweepRequest(kernel="vector_add", dims={"n": 4096}), *_validated(), Target.named("sm_90"))[0]
    door = Door({own.num_warps: 10.0, 2 * own.num_warps: 5.0})
    request = SweepRequest(
        kernel="vector_add", dims={"n": 4096}, configs=(own, own.model_copy(update={"num_warps": 2 * own.num_warps}))
    )
    *_, last = sweep.sweep(door, request, choose.validate(request), Target.named("sm_90"))
    assert last.default == 0 and last.best == 1 and last.speedup == pytest.approx(2.0)
    assert last.calls_to_repay == pytest.approx(last.seconds * 1e6 / 5.0, abs=1)


@pytest.mark.parametrize("last, repaid", [(9.0, False), (7.9, True)])
def test_nothing_repays_a_sweep_whose_winner_is_within_the_noise(last, repaid):
    """The default takes 8 to 12; what takes 5 to 9 may be no faster, what takes 5 to 7.9 is."""
    own = sweep.listed(SweepRequest(kernel="vector_add", dims={"n": 4096}), *_validated(), Target.named("sm_90"))[0]
    door = Door({
        own.num_warps: ProviderBench(ok=True, us=Times(p20=8.0, p50=10.0, p80=12.0)),
        2 * own.num_warps: ProviderBench(ok=True, us=Times(p20=5.0, p50=7.0, p80=last)),
    })  # fmt: skip
    both = own, own.model_copy(update={"num_warps": 2 * own.num_warps})
    request = SweepRequest(kernel="vector_add", dims={"n": 4096}, configs=both)
    *_, found = sweep.sweep(door, request, choose.validate(request), Target.named("sm_90"))
    assert found.best == 1 and found.speedup == pytest.approx(10 / 7) and bool(found.calls_to_repay) == repaid


def test_on_a_cpu_configs_that_differ_in_warps_alone_are_timed_once_and_the_default_keeps_its_place():
    request = SweepRequest(kernel="vector_add", dims={"n": 4096})
    own = sweep.listed(request, choose.validate(request), Target.named("cpu"))[0]
    alike = own.model_copy(update={"num_warps": 2 * own.num_warps})
    other = own.model_copy(update={"meta": {**own.meta, "BLOCK": 64}})
    request = request.model_copy(update={"configs": (alike, own, other)})
    door = Door({own.num_warps: 4.0, alike.num_warps: 2.0})
    *_, last = sweep.sweep(door, request, choose.validate(request), Target.named("cpu"))
    assert [asked.config for asked in door.asked if isinstance(asked, BenchRequest)] == [alike, other]
    assert [c.us.p50 for c in last.configs] == [2.0, 2.0, 4.0] and all(c.tried for c in last.configs)
    assert last.best == last.default == 1 and last.calls_to_repay is None
    assert last.note == sweep.ONE_PROGRAM


def _validated():
    return (choose.validate(SweepRequest(kernel="vector_add", dims={"n": 4096})),)


def test_offline_nothing_is_timed():
    door = Door({})
    last = results(door, 1, 2, timed=False, target="gfx942")[-1]
    assert not any(isinstance(request, BenchRequest) for request in door.asked)
    assert [c.registers for c in last.configs] == [8, 16] and last.best is None


class Compiling(Door):
    """Compiles as `how` says, which is given the event that stops it."""

    def __init__(self, how):
        super().__init__({})
        self.how = how

    def run(self, request, cancel=None):
        self.how(cancel)
        return super().run(request, cancel)


def offline(door, *warps, cancel=None):
    request = SweepRequest(kernel="vector_add", dims={"n": 4096}, configs=configs(*warps), timed=False)
    return sweep.sweep(door, request, choose.validate(request), Target.named("sm_90"), cancel)


def test_as_many_configs_are_compiled_at_once_as_there_are_compilers():
    together = threading.Barrier(2)
    *_, last = offline(Compiling(lambda cancel: together.wait(10)), 1, 2, 4, 8)
    assert last.done and [c.registers for c in last.configs] == [8, 16, 32, 64]


def waits_to_be_stopped(cancel):
    assert cancel.wait(10)
    raise EngineError(Failure(kind="cancelled", message="stopped"))


def test_a_stop_reaches_the_compilers():
    cancel = threading.Event()
    threading.Timer(0.2, cancel.set).start()
    with pytest.raises(EngineError, match="stopped"):
        list(offline(Compiling(waits_to_be_stopped), 1, 2, 4, cancel=cancel))


def test_a_sweep_that_nobody_reads_on_stops_its_compilers():
    """One answers, the other would run for ever; the caller's own event stays unset, since others may use it."""
    cancel, seen = threading.Event(), iter((lambda stop: None, *[waits_to_be_stopped] * 9))
    rows = offline(Compiling(lambda stop: next(seen)(stop)), 1, 2, cancel=cancel)
    first = next(row for row in rows if isinstance(row, SweepResult))
    assert sum(c.tried for c in first.configs) == 1
    began = time.monotonic()
    rows.close()
    assert time.monotonic() - began < 5 and not cancel.is_set()
    assert not any(thread.name.startswith("sweep") for thread in threading.enumerate())


def test_every_config_is_compiled_before_one_is_timed():
    door = Door({1: 4.0, 2: 5.0})
    seen = results(door, 1, 2)
    assert [isinstance(request, BenchRequest) for request in door.asked] == [False, False, True, True]
    compiled = next(r for r in seen if all(c.registers for c in r.configs))
    assert not any(c.tried for c in compiled.configs) and seen[-1].done and all(c.tried for c in seen[-1].configs)


def test_every_config_of_target_and_host_is_listed_once():
    request = SweepRequest(kernel="softmax", dims={"rows": 4, "n": 1000})
    chosen = choose.validate(request)
    listed = sweep.listed(request, chosen, Target.named("cpu"))
    assert len({c.model_dump_json() for c in listed}) == len(listed)
    inputs = chosen.spec.inputs(chosen.dims, chosen.dtype, "meta")
    for target in ("sm_90", "cpu"):
        assert all(sweep.as_choice(c) in listed for c in chosen.spec.configs(inputs, Target.named(target)))


def test_recorded_times_stand_beside_the_same_config():
    times = Times(p20=1.0, p50=2.0, p80=3.0)
    two = configs(2)[0]
    before = results(Door({2: 4.0}), 2)[-1]
    recorded = before.model_copy(update={"configs": (ConfigResult(config=two, ok=True, us=times),)})
    last = results(Door({1: 9.0, 2: 8.0}, (recorded,)), 1, 2)[-1]
    assert [c.recorded_us for c in last.configs] == [None, times]


def test_no_configs_and_no_target_are_refused_in_one_line():
    with pytest.raises(InputError, match="configs is empty; give at least one"):
        swept(Door({}))
    request = SweepRequest(kernel="vector_add", target="sm_1")
    with pytest.raises(InputError, match="no target is named 'sm_1'; choose from sm_75"):
        sweep.listed(request, choose.validate(request), Target.named("cpu"))


def asked(kernel, *metas, **fields):
    configs = tuple(ConfigChoice(meta=meta) for meta in metas) or None
    request = SweepRequest(kernel=kernel, configs=configs, **fields)
    return request, choose.validate(request)


TILES = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8}


@pytest.mark.parametrize("kernel, dims", [("matmul", {"m": 200, "n": 300, "k": 251}), ("attention", {"head_dim": 65})])
@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_a_program_that_several_configs_lead_to_is_listed_once_as_it_is_launched(kernel, dims, arch):
    """Nothing here lies as descriptors need it: FLATTEN and TMA say nothing."""
    request, chosen = asked(kernel, dims=dims, target=arch)
    here = Target.named(arch)
    inputs = chosen.spec.inputs(chosen.dims, chosen.dtype, "meta")
    found = sweep.listed(request, chosen, here)
    plans = [chosen.spec.plan(inputs, Config(c.meta, c.num_warps, c.num_stages), here) for c in found]
    assert [sweep.as_choice(plan.launches[-1].config) for plan in plans] == found
    assert len({c.model_dump_json() for c in found}) == len(found) < len(list(chosen.spec.configs(inputs, here)))
    *_, last = sweep.sweep(Door({1: 3.0, 2: 3.0, 4: 3.0, 8: 3.0}), request, chosen, here)
    assert last.default == 0 and last.choice.config == found[0]


def test_given_configs_that_are_one_program_keep_their_rows_and_share_a_time():
    metas = TILES, {**TILES, "FLATTEN": 0}, {**TILES, "FLATTEN": 1}, {**TILES, "BLOCK_K": 64}
    request, chosen = asked("matmul", *metas, dims={"m": 200, "n": 300, "k": 251})
    door = Door({4: 3.0})
    *_, last = sweep.sweep(door, request, chosen, Target.named("sm_90"))
    timed = [ask.config.meta for ask in door.asked if isinstance(ask, BenchRequest)]
    assert timed == [metas[0], metas[3]] and last.note == sweep.ONE_PROGRAM
    assert [c.config.meta for c in last.configs] == list(metas) and all(c.us for c in last.configs)


def test_recorded_times_stand_beside_the_program_that_was_recorded():
    times = Times(p20=1.0, p50=2.0, p80=3.0)
    request, chosen = asked("matmul", TILES, dims={"m": 200, "n": 300, "k": 251})
    *_, before = sweep.sweep(Door({4: 4.0}), request, chosen, Target.named("sm_90"))
    older = ConfigResult(config=ConfigChoice(meta={**TILES, "FLATTEN": 1}), ok=True, us=times)
    door = Door({4: 9.0}, (before.model_copy(update={"configs": (older,)}),))
    *_, last = sweep.sweep(door, request, chosen, Target.named("sm_90"))
    assert [c.recorded_us for c in last.configs] == [times]


def test_a_config_that_lacks_a_name_is_a_row_among_others_and_bad_input_alone():
    whole = {"BLOCK_M": 1, "BLOCK_N": 1024}
    request, chosen = asked("softmax", {}, whole)
    assert [c.meta for c in sweep.listed(request, chosen, Target.named("cpu"))] == [{}, whole]
    request, chosen = asked("softmax", {}, {"BLOCK_M": 1})
    with pytest.raises(InputError, match="config lacks 'BLOCK_N'; give 'BLOCK_N' a value"):
        sweep.listed(request, chosen, Target.named("cpu"))


def test_a_row_keeps_the_kind_of_its_failure():
    last = results(Door({1: HUNG, 2: 3.0, 4: WRONG}), 1, 2, 4)[-1]
    assert [c.failure_kind for c in last.configs] == ["timeout", None, None]
