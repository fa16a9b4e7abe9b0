"""The answer in float64 and what an honest implementation may be off by, made once for a case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from playground.engine import choose, judge
from playground.engine.baselines import eager_of, named
from playground.engine.errors import describe
from playground.engine.job import is_fatal
from playground.engine.messages import OutputVerdict

if TYPE_CHECKING:
    from playground.engine.execute import Case


class Verdicts:
    """The reference in float64 and the bars, made once for a case; `of` judges one implementation's outputs."""

    def __init__(self, case: Case):
        self.spec = case.spec
        self.names = [output.name for output in case.spec.outputs]
        self.reference = named(case.spec.reference(**choose.in_float64(case.inputs)), self.names)
        try:
            self.eager: dict[str, Any] | None = named(eager_of(case.spec)(**case.fresh()), self.names)
            self.eager_failure = ""
        except Exception as error:
            if is_fatal(error):
                raise
            self.eager, self.eager_failure = None, describe(error)
        tf32 = case.dtype == "tf32"
        self.flops = case.spec.cost(case.inputs).flops
        self.bars = {output.name: self._bar(output.kind, output.name, tf32) for output in case.spec.outputs}

    def _bar(self, kind: str, name: str, tf32: bool) -> judge.Bars:
        if kind != "float":
            return judge.Bars(0.0, 0.0, 0.0)
        eager = self.eager[name] if self.eager else None
        reference = self.reference[name]
        terms = self.flops / (2 * max(reference.numel(), 1))  # a product and a sum each
        return judge.bars(eager, reference, self._dtype(name), tf32, terms)

    def _dtype(self, name: str) -> torch.dtype:
        return self.eager[name].dtype if self.eager else torch.float32

    def of(self, outputs: Mapping[str, Any]) -> dict[str, OutputVerdict]:
        """Raises KeyError where an output is missing."""
        return {
            output.name: judge.judge(
                outputs[output.name], self.reference[output.name], self.bars[output.name], output.kind,
                self._dtype(output.name) if self.eager else None,
            )
            for output in self.spec.outputs
        }  # fmt: skip
