"""Random kernels, natively and in the interpreter: `python -m tests.native.fuzz --count 2000`.

Each program loads, computes, stores over its own input, loops, branches, reduces
and changes shapes over blocks of 32 floats. Both sides run in processes of their
own, in batches, so that a crash or a hang is a finding and not the end.
"""

import argparse
import importlib.util
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

BATCH = 100
TIMEOUT = 600
ROWS = 6  # of X; the outputs O have as many


class Generator:
    """Writes the source of one kernel. The same seed gives the same source."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.seed = seed
        self.lines: list[str] = []
        self.names = 0

    def source(self) -> str:
        values = self.block(1, ["a", "b"], 9)
        stores = [f"    tl.store(O + {k * 32} + i, {v})" for k, v in enumerate(values[-ROWS:])]
        head = [
            "@triton.jit",
            f"def kernel_{self.seed}(X, O, n):",
            "    i = tl.arange(0, 32)",
            "    a = tl.load(X + i)",
            "    b = tl.load(X + 32 + i)",
        ]
        return "\n".join([*head, *self.lines, *stores, ""])

    def fresh(self) -> str:
        self.names += 1
        return f"t{self.names}"

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def expression(self, values: list[str]) -> str:
        a, b = self.random.choice(values), self.random.choice(values)
        return self.pick(
            f"{a} + {b}",
            f"{a} - {b} * 0.5",
            f"tl.maximum({a}, {b})",
            f"tl.where({a} > {b}, {a}, {b} * 0.25)",
            f"tl.exp(-tl.abs({a}))",
            f"{a} * 0.5 + tl.sum({b}, 0) * 0.01",
            f"{a} - tl.max({b}, 0)",
            f"{a} / (1.0 + tl.abs({b}))",
            f"tl.flip({a}, 0)",
            f"tl.sigmoid({a})",
            f"tl.log(1.0 + tl.abs({a}))",
            f"tl.sum({a}[:, None] * ({b}[None, :] * 0.05), 1)",
            f"tl.max({a}[None, :] + {b}[:, None], 0) * 0.5",
            f"tl.cumsum({a}, 0) * 0.1",
            f"tl.reshape(tl.trans(tl.reshape({a}, (4, 8))), (32,)) + {b} * 0.1",
            f"tl.sum(tl.reshape({a}, (8, 4)), 1, keep_dims=True).broadcast_to((8, 4)).reshape((32,)) * 0.2",
            f"tl.gather({a}, (i * 3) % 32, 0) - {b} * 0.1",
            f"tl.argmax({a}, 0) * 0.1 + {b}",
            f"tl.reshape(tl.dot(tl.reshape({a}, (2, 16)), tl.reshape({b}, (16, 2))) * 0.1, (4,))[:, None]"
            f".broadcast_to((4, 8)).reshape((32,))",
        )

    def pointer(self) -> str:
        place = self.pick("i", "i", "31 - i", "(i * 5) % 32", "(i + 3) % 32")
        return f"X + {self.random.randrange(4) * 32} + {place}"

    def mask(self) -> str:
        low, high = self.random.randrange(9), self.random.randrange(1, 33)
        return self.pick("", f", mask=i < {high}", f", mask=(i >= {low}) & (i < n)")

    def block(self, depth: int, values: list[str], count: int) -> list[str]:
        values = list(values)
        for _ in range(count):
            self.statement(depth, values)
        return values

    def write(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def statement(self, depth: int, values: list[str]) -> None:
        kind = self.random.randrange(12)
        if kind < 3:
            mask = self.mask()
            name = self.fresh()
            self.write(depth, f"{name} = tl.load({self.pointer()}{mask}{', other=0.5' if mask else ''})")
            values.append(name)
        elif kind < 7:
            name = self.fresh()
            self.write(depth, f"{name} = {self.expression(values)}")
            values.append(name)
        elif kind < 9:
            self.write(depth, f"tl.store({self.pointer()}, {self.expression(values)}{self.mask()})")
        elif kind == 9 and depth < 3:
            self.loop(depth, values)
        elif kind == 10 and depth < 3:
            self.branch(depth, values)
        else:
            name = self.fresh()
            self.write(depth, f"{name} = {self.random.choice(values)} * 1.0")
            values.append(name)

    def loop(self, depth: int, values: list[str]) -> None:
        carried = self.random.sample(values, min(len(values), 2))
        counter = f"j{depth}"
        self.write(depth, f"for {counter} in range({self.pick('n % 3 + 1', '3', 'n // 16')}):")
        inner = self.block(depth + 1, values, 3)
        for name in carried:
            self.write(depth + 1, f"{name} = ({self.expression(inner)}) * 0.5 + {counter} * 0.1")

    def branch(self, depth: int, values: list[str]) -> None:
        target = self.random.choice(values)
        test = self.pick("n > 20", "n < 5", f"tl.sum({self.random.choice(values)}, 0) > 0")
        self.write(depth, f"if {test}:")
        inner = self.block(depth + 1, values, 2)
        self.write(depth + 1, f"{target} = {self.expression(inner)}")
        if self.random.random() < 0.5:
            self.write(depth, "else:")
            inner = self.block(depth + 1, values, 2)
            self.write(depth + 1, f"{target} = {self.expression(inner)}")


def write_module(path: Path, seeds) -> None:
    kernels = [Generator(seed).source() for seed in seeds]
    path.write_text("import triton\nimport triton.language as tl\n\n\n" + "\n\n".join(kernels))


def run_side(side: str, source: str, output: str) -> None:
    """In a child: run every kernel of a module and save what it left in X and O."""
    import torch

    if side == "native":
        from playground import native

        native.enable()
    else:
        from kernels.interpreted import as_compiled

        as_compiled()
    spec = importlib.util.spec_from_file_location("fuzzed", source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    results = {}
    for name in (n for n in dir(module) if n.startswith("kernel_")):
        seed = int(name.removeprefix("kernel_"))
        torch.manual_seed(seed)
        x, out = torch.randn(ROWS, 32), torch.zeros(ROWS, 32)
        try:
            getattr(module, name)[(1,)](x, out, 17 if seed % 2 else 32)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
            results[name] = repr(error)[-300:]
            continue
        results[name] = torch.cat([x, out])
    torch.save(results, output)


def _spawn(side: str, source: Path, output: Path, cache: Path) -> subprocess.Popen:
    environment = {**os.environ, "PLAYGROUND_NATIVE_CACHE": str(cache)}
    environment.pop("TRITON_INTERPRET", None)
    if side == "interpreter":
        environment["TRITON_INTERPRET"] = "1"
    command = [sys.executable, "-W", "ignore", "-m", "tests.native.fuzz", "--side", side, str(source), str(output)]
    return subprocess.Popen(command, env=environment)


def compare(mine, theirs) -> str | None:
    """What differs, or None. Programs that the interpreter cannot run are skipped by the caller."""
    if isinstance(mine, str):
        return f"native failed: {mine}"
    finite = theirs.isfinite()
    if not bool((mine.isfinite() == finite).all()):
        return "NaN or infinity in other places"
    a, b = mine[finite].double(), theirs[finite].double()
    error = ((a - b).abs() / (1 + b.abs())).max().item() if b.numel() else 0.0
    return f"differs by {error:.1e}" if error > 1e-3 else None


def fuzz(seeds: list[int], folder: Path) -> tuple[int, list[str]]:
    """How many programs agreed, and a line for each that did not."""
    import torch

    source = folder / f"kernels_{seeds[0]}.py"
    write_module(source, seeds)
    outputs = {side: folder / f"{side}_{seeds[0]}.pt" for side in ("native", "interpreter")}
    children = {side: _spawn(side, source, path, folder / "cache") for side, path in outputs.items()}
    try:
        for side, child in children.items():
            code = child.wait(TIMEOUT)
            if code:
                return 0, [f"seeds {seeds[0]} to {seeds[-1]}: {side} ended with {code}"]
    except subprocess.TimeoutExpired:
        return 0, [f"seeds {seeds[0]} to {seeds[-1]}: no end within {TIMEOUT} seconds"]
    finally:
        for child in children.values():
            child.kill()  # of no effect on one that has ended
            child.wait()
    mine, theirs = (torch.load(outputs[side]) for side in ("native", "interpreter"))
    agreed, findings = 0, []
    for name, wanted in theirs.items():
        if isinstance(wanted, str):
            continue
        difference = compare(mine[name], wanted)
        agreed += difference is None
        if difference:
            findings.append(f"{name}: {difference}")
    return agreed, findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="the first program's seed")
    parser.add_argument("--side", nargs=3, metavar=("SIDE", "SOURCE", "OUTPUT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        run_side(*arguments.side)
        return 0
    agreed, findings = 0, []
    with tempfile.TemporaryDirectory() as folder:
        seeds = range(arguments.seed, arguments.seed + arguments.count)
        for start in range(0, len(seeds), BATCH):
            more, found = fuzz(list(seeds[start : start + BATCH]), Path(folder))
            agreed, findings = agreed + more, findings + found
            print(f"{start + len(seeds[start : start + BATCH])} programs, {len(findings)} findings", flush=True)
    print("\n".join(findings))
    print(f"{agreed} of {arguments.count} programs agree with the interpreter")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
