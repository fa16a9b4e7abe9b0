"""TTIR as Triton prints it, with locations, to the IR of `ir.py`.

Triton's Python bindings cannot read every attribute of an op, and its printed
form is stable, so the text is the interface. This is not an MLIR parser: it
knows the shapes of line that TTIR has, one op a line, and nothing else.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import count

from .ir import Block, Function, Module, Op, Type, Value

_REFERENCE = re.compile(r"%[\w.$-]+(?:#\d+)?")
_INNER_LOCATION = re.compile(r" loc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
_ATTRIBUTE = re.compile(r'(\w+) = ("(?:[^"\\]|\\.)*"|array<[^>]*>|[^\s,}>]+)')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_EFFECTS = {"tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.call", "tt.print", "tt.assert"}
_NESTED = {"tt.reduce", "tt.scan", "tt.map_elementwise"}


def split_commas(text: str) -> list[str]:
    """Split at the commas that are inside no bracket and no string."""
    parts, depth, start, quoted = [], 0, 0, False
    for i, c in enumerate(text):
        if c == '"' and text[i - 1 : i] != "\\":
            quoted = not quoted
        elif quoted:
            continue
        elif c in "<({[":
            depth += 1
        elif c in ")}]" or (c == ">" and text[i - 1 : i] != "-"):
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    tail = text[start:].strip()
    return [*parts, tail] if tail else parts


@lru_cache(maxsize=4096)
def parse_type(text: str) -> Type:
    text = text.strip()
    tensor = re.fullmatch(r"tensor<((?:\d+x)*)(.+)>", text)
    if not tensor:
        return Type((), text, False)
    shape = tuple(int(n) for n in tensor[1].split("x")[:-1])
    return Type(shape, tensor[2].split(", #")[0], True)


def parse_types(text: str) -> list[Type]:
    text = text.strip()
    while text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    return [parse_type(t) for t in split_commas(text)]


def parse_module(text: str) -> Module:
    return _Parser(text).module()


def _match(pattern: str, text: str) -> re.Match:
    """A match that has to be there: otherwise this is no TTIR that we know."""
    found = re.match(pattern, text)
    if found is None:
        raise ValueError(f"not understood: {text}")
    return found


class _Parser:
    """Walks the lines once. Regions are read by recursion."""

    def __init__(self, text: str):
        lines = [line.strip() for line in text.splitlines()]
        self.aliases = {}
        self.lines = []
        for line in lines:
            alias = re.match(r"(#loc\d*) = loc\((.*)\)$", line)
            if alias:
                self.aliases[alias[1]] = alias[2]
            elif line:
                self.lines.append(line)
        self.at = 0
        self.positions = count(1)
        self.closer = ""
        self.closer_location: str | None = None

    def module(self) -> Module:
        functions = {}
        while self.at < len(self.lines):
            line, _ = self._next()
            head = re.match(
                r'tt\.func (public|private) @("?[^("]+"?)\((.*?)\)(?: -> (.*?))?'
                r"(?: attributes .*)? \{$",
                line,
            )
            if head:
                function = self._function(head)
                functions[function.name] = function
        return Module(functions, {name: self._source_line(name) for name in self.aliases})

    def _next(self) -> tuple[str, str | None]:
        """The next line without its locations, and its own location's alias."""
        line = self.lines[self.at]
        self.at += 1
        own = re.search(r" loc\((#loc\d*)\)$", line)
        return _INNER_LOCATION.sub("", line), own[1] if own else None

    def _source_line(self, alias: str, hops: int = 12) -> tuple[str, int]:
        """The innermost line that is not Triton's own library."""
        text = self.aliases.get(alias, "")
        plain = re.match(r'"(.*)":(\d+):\d+$', text)
        if plain:
            return plain[1], int(plain[2])
        best = ("<unknown>", 0)
        for inner in re.findall(r"#loc\d*", text) if hops else ():
            found = self._source_line(inner, hops - 1)
            if found[1] and (not best[1] or "/triton/language/" in best[0]):
                best = found
        return best

    def _function(self, head: re.Match) -> Function:
        body = Op("func", None)  # type: ignore[arg-type]
        args = []
        for arg in split_commas(head[3]):
            name, type_text = arg.split(": ", 1)
            args.append((name, parse_type(re.split(r" \{", type_text)[0])))
        body.regions = [self._region(body, {}, args)]
        returns = parse_types(head[4]) if head[4] else []
        names = [name[1:] for name, _ in args]
        return Function(head[2], head[1] == "public", body, returns, names)

    def _region(self, parent: Op, env: dict, args=()) -> list[Block]:
        env = dict(env)
        block = Block(parent)
        blocks = [block]
        self._add_args(block, args, env)
        while True:
            line, location = self._next()
            if line.startswith("}"):
                self.closer, self.closer_location = line, location
                return self._resolve_successors(blocks, env)
            label = re.match(r"\^(\w+)(?:\((.*)\))?:", line)
            if label is None:
                self._op(line, location, block, env)
                continue
            if block.ops or (block.args and label[1] != "bb0"):
                block = Block(parent)
                blocks.append(block)
            block.label = label[1]
            pairs = (a.split(": ", 1) for a in split_commas(label[2] or ""))
            self._add_args(block, [(n.strip(), parse_type(t)) for n, t in pairs], env)

    @staticmethod
    def _add_args(block: Block, args, env: dict) -> None:
        for name, type_ in args:
            value = env[name] = Value(type_, None, len(block.args), block)
            block.args.append(value)

    def _resolve_successors(self, blocks: list[Block], env: dict) -> list[Block]:
        """A branch may name values of blocks printed after it."""
        for block in blocks:
            for op in block.ops:
                if not op.name.startswith("cf."):
                    continue
                for label, arguments in re.findall(r"\^(\w+)(?:\((.*?)\))?", op.text):
                    names = _REFERENCE.findall(arguments.partition(" : ")[0])
                    values = [self._lookup(n, env) for n in names]
                    for value in values:
                        value.users.append(op)
                    op.successors.append((label, values))
        return blocks

    @staticmethod
    def _lookup(name: str, env: dict) -> Value:
        base, _, number = name.partition("#")
        value = env[base]
        return value[int(number or 0)] if isinstance(value, list) else value

    def _use(self, op: Op, names, env: dict) -> None:
        for name in names:
            value = self._lookup(name, env)
            op.operands.append(value)
            value.users.append(op)

    def _op(self, line: str, location: str | None, block: Block, env: dict) -> None:
        named = re.match(r"(%[\w.$-]+(?:, %[\w.$-]+)*)(?::\d+)? = (.*)", line)
        names, text = (named[1], named[2]) if named else (None, line)
        op = Op(_match(r'"?([\w.]+)"?', text)[1], block, text=text, location=location)
        block.ops.append(op)
        op.position = next(self.positions)
        op.has_effect = op.name in _EFFECTS
        special = {"scf.for": self._for, "scf.if": self._if, "scf.while": self._while}
        if op.name in special:
            types = special[op.name](op, env)
        elif op.name in _NESTED:
            types = self._nested(op, env)
        elif op.name.startswith("cf."):
            self._use(op, _REFERENCE.findall(text.split("^")[0]), env)
            types = []
        else:
            types = self._plain(op, env, bool(names))
        self._finish(op, names, types, env)

    def _nested(self, op: Op, env: dict) -> list[Type]:
        self._use(op, _REFERENCE.findall(op.text), env)
        op.attrs = dict(_ATTRIBUTE.findall(op.text))
        op.regions = [self._region(op, env)]
        op.location = self.closer_location
        return parse_types(self.closer.rsplit(" -> ", 1)[1])

    def _for(self, op: Op, env: dict) -> list[Type]:
        head = _match(
            r"scf\.for (unsigned )?(%\S+) = (%\S+) to (%\S+) step (%\S+)"
            r"(?: iter_args\((.*?)\) -> \((.*?)\))?\s*(?:: (\S+))?\s*\{",
            op.text,
        )
        op.words = ["unsigned"] if head[1] else []
        carried = [pair.split(" = ") for pair in split_commas(head[6] or "")]
        types = parse_types(head[7]) if head[7] else []
        self._use(op, [head[3], head[4], head[5], *(init for _, init in carried)], env)
        args = [(head[2], parse_type(head[8] or "index"))]
        args += [(name, t) for (name, _), t in zip(carried, types, strict=True)]
        op.regions = [self._region(op, env, args)]
        op.location = self.closer_location
        return types

    def _if(self, op: Op, env: dict) -> list[Type]:
        head = _match(r"scf\.if (%\S+)(?: -> \((.*)\))? \{", op.text)
        self._use(op, [head[1]], env)
        op.regions = [self._region(op, env)]
        if self.closer.startswith("} else"):
            op.regions.append(self._region(op, env))
        op.location = self.closer_location
        return parse_types(head[2]) if head[2] else []

    def _while(self, op: Op, env: dict) -> list[Type]:
        head = _match(r"scf\.while(?: \((.*?)\))? : \((.*?)\) -> (.*) \{", op.text)
        carried = [pair.split(" = ") for pair in split_commas(head[1] or "")]
        inputs = parse_types(head[2]) if head[2] else []
        self._use(op, [init for _, init in carried], env)
        args = [(name, t) for (name, _), t in zip(carried, inputs, strict=True)]
        op.regions = [self._region(op, env, args)]
        op.regions.append(self._region(op, env))
        op.location = self.closer_location
        return parse_types(head[3]) if head[3] != "()" else []

    def _plain(self, op: Op, env: dict, has_result: bool) -> list[Type]:
        head, colon, signature = op.text.rpartition(" : ")
        if not colon:
            head, signature = op.text, ("i1" if op.name == "arith.constant" else "")
        self._use(op, _REFERENCE.findall(_STRING.sub("", head)), env)
        op.attrs = dict(_ATTRIBUTE.findall(head))
        op.words = re.findall(r"[\w-]+", head[len(op.name) :].split("%")[0])
        return self._result_types(op, signature) if has_result else []

    @staticmethod
    def _result_types(op: Op, signature: str) -> list[Type]:
        first = op.operands[0].type if op.operands else parse_type("none")
        if op.name == "tt.load":
            return [Type(first.shape, first.pointee, first.is_tensor)]
        if op.name in ("arith.cmpi", "arith.cmpf"):
            return [Type(first.shape, "i1", first.is_tensor)]
        if op.name in ("tt.addptr", "tt.clampf"):
            return [first]
        for arrow in (" -> ", " to "):
            if arrow in signature:
                types = parse_types(signature.rsplit(arrow, 1)[1])
                return types * 2 if op.name == "tt.split" else types
        return parse_types(split_commas(signature)[-1])

    def _finish(self, op: Op, names: str | None, types: list[Type], env: dict) -> None:
        op.end = max([op.position, *(b.ops[-1].end for r in op.regions for b in r if b.ops)])
        op.results = [Value(t, op, i, op.block) for i, t in enumerate(types)]
        inner = (o for r in op.regions for b in r for o in b.ops)
        op.has_effect = op.has_effect or any(o.has_effect for o in inner)
        if not names:
            return
        listed = names.split(", ")
        if len(listed) > 1:
            env.update(zip(listed, op.results, strict=True))
        else:
            env[names] = op.results if len(op.results) > 1 else op.results[0]
