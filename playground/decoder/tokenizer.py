"""Text to token ids and back, through the `tokenizers` library and the model's own chat template.

Decoding while tokens arrive is `Detokenizer`'s work: a character may be spread over several tokens, so a token's
text is given out only once it is whole.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from playground.decoder.config import ModelError, read_json

# For a base model, which has no template: the conversation as plain lines.
PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)
BROKEN = "\ufffd"  # what an incomplete UTF-8 sequence decodes to


class ChatTokenizer:
    """tokenizer.json and the chat template of a checkpoint's folder."""

    def __init__(self, folder: Path):
        from tokenizers import Tokenizer

        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ModelError(f"{folder} has no tokenizer.json; get the checkpoint with its tokenizer")
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # noqa: BLE001 - the library raises bare Exception for a damaged file
            raise ModelError(f"{path} is no tokenizer: {error}") from None
        self._config = read_json(folder / "tokenizer_config.json")
        self._template = _template(folder, self._config)

    @property
    def vocab_size(self) -> int:
        return self._tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Ids of `text` alone; nothing is put before or after it."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=skip_special)

    def piece(self, token: int) -> str:
        """One token as it stands in the vocabulary's own spelling, turned to text as far as it is text."""
        return self._tokenizer.decode([token], skip_special_tokens=False)

    def render(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> str:
        """The conversation as the model was taught to read it. messages: {"role", "content"} each.

        Raises ModelError with the template's own words where it refuses the conversation.
        """
        import jinja2

        values: dict[str, Any] = {
            name: _text(self._config.get(name)) for name in ("bos_token", "eos_token", "unk_token", "pad_token")
        }
        values |= {"messages": [dict(m) for m in messages], "add_generation_prompt": add_generation_prompt}
        values |= {"tools": None, "documents": None, "enable_thinking": False}
        try:
            return _compile(self._template).render(**values)
        except jinja2.TemplateError as error:
            raise ModelError(f"the model's chat template refuses this conversation: {error}") from None

    def encode_chat(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> list[int]:
        return self.encode(self.render(messages, add_generation_prompt))


class Detokenizer:
    """Text of a stream of tokens. What `push` returns, joined, is the decoding of all tokens at once."""

    def __init__(self, tokenizer: ChatTokenizer):
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._start = 0  # the tokens from here on give context: some decoders drop a first space
        self._given = 0  # the tokens up to here have been given out

    def push(self, token: int) -> str:
        """The text that this token completes; "" while a character is not whole."""
        self._ids.append(token)
        before = self._tokenizer.decode(self._ids[self._start : self._given])
        now = self._tokenizer.decode(self._ids[self._start :])
        if now.endswith(BROKEN):
            return ""
        return self._give(before, now)

    def flush(self) -> str:
        """What is left at the end, incomplete characters as U+FFFD."""
        before = self._tokenizer.decode(self._ids[self._start : self._given])
        return self._give(before, self._tokenizer.decode(self._ids[self._start :]))

    def _give(self, before: str, now: str) -> str:
        self._start, self._given = self._given, len(self._ids)
        return now[len(before) :]


def _template(folder: Path, config: Mapping[str, Any]) -> str:
    alone = folder / "chat_template.jinja"
    if alone.is_file():
        return alone.read_text()
    template = config.get("chat_template") or PLAIN_TEMPLATE
    if isinstance(template, list):  # several, by name
        template = next((t["template"] for t in template if t.get("name") == "default"), PLAIN_TEMPLATE)
    return template


def _text(token: Any) -> str:
    """A special token as config files spell it: a string, or an object that holds one."""
    return token.get("content", "") if isinstance(token, dict) else token or ""


@functools.lru_cache(8)
def _compile(template: str) -> Any:
    """As transformers compiles chat templates: sandboxed, blocks trimmed, with raise_exception and strftime_now."""
    import time

    import jinja2
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = time.strftime
    return environment.from_string(template)
