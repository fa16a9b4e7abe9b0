"""Small kernels, one for each part of the language, and what to run them on.

`python -m tests.native.features FILE` runs them in the interpreter (with
TRITON_INTERPRET=1), or natively with `--native`, and saves their outputs. A case whose
interpreter is known to be wrong, or unable, gives PyTorch's answer instead.
"""

import sys

import torch

from kernels.interpreted import as_compiled

from . import features_control, features_values  # noqa: F401 - each fills CASES and TRUTHS
from .cases import CASES, TRUTHS


def run(name: str) -> list:
    torch.manual_seed(1)
    return [t.clone() for t in CASES[name]()]


def expected(name: str) -> list:
    torch.manual_seed(1)
    return [t.clone() for t in TRUTHS[name]()]


def main(path: str, natively: bool) -> None:
    if natively:
        from playground import native

        native.enable()
    else:
        as_compiled()
    results = {}
    for name in CASES:
        if not natively and name in TRUTHS:
            continue
        try:
            results[name] = run(name)
        except Exception as error:
            if natively:
                raise
            results[name] = repr(error)
    torch.save(results, path)


if __name__ == "__main__":
    main(sys.argv[1], "--native" in sys.argv)
