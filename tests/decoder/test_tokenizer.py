"""Text to ids and back: the model's template, and a stream that never shows half a character."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from playground.decoder.config import ModelError
from playground.decoder.tokenizer import ChatTokenizer, Detokenizer
from tests.decoder import tiny


@pytest.fixture(scope="module")
def bytes_tokenizer(tmp_path_factory):
    """A token for each byte, so every character beyond ASCII is spread over several."""
    folder = tmp_path_factory.mktemp("bytes")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    return ChatTokenizer(folder)


@given(st.text(max_size=40))
def test_a_stream_joins_to_the_text_and_shows_whole_characters(bytes_tokenizer, text):
    detokenizer = Detokenizer(bytes_tokenizer)
    pieces = [detokenizer.push(i) for i in bytes_tokenizer.encode(text)]
    assert "".join(pieces) + detokenizer.flush() == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


def test_an_answer_that_ends_within_a_character_says_so(bytes_tokenizer):
    detokenizer = Detokenizer(bytes_tokenizer)
    ids = bytes_tokenizer.encode("a€")
    assert [detokenizer.push(i) for i in ids[:-1]] == ["a", "", ""]
    assert detokenizer.flush() == "\ufffd"


def folder_with(tmp_path, **config):
    (tmp_path / "tokenizer.json").write_bytes((tiny.folder() / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


MESSAGES = [{"role": "user", "content": "t5"}]


def test_the_models_own_template_is_used(tmp_path):
    template = (
        "{{ bos_token }}{% for m in messages %}\n[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}>{% endif %}"
    )
    tokenizer = ChatTokenizer(folder_with(tmp_path, chat_template=template, bos_token={"content": "<s>"}))
    # Blocks are trimmed as transformers trims them: the newline after a block goes, that before text stays.
    assert tokenizer.render(MESSAGES) == "<s>[user] t5\n>"
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    assert ChatTokenizer(tmp_path).render(MESSAGES) == "t5!"


def test_a_template_that_refuses_is_quoted(tmp_path):
    refuse = ChatTokenizer(folder_with(tmp_path, chat_template="{{ raise_exception('roles must alternate') }}"))
    with pytest.raises(ModelError, match="refuses this conversation: roles must alternate"):
        refuse.render(MESSAGES)


def test_a_template_cannot_reach_into_python(tmp_path):
    template = "{{ messages.__class__.__base__.__subclasses__() }}"
    with pytest.raises(ModelError, match="unsafe"):
        ChatTokenizer(folder_with(tmp_path, chat_template=template)).render(MESSAGES)


def test_a_missing_or_broken_tokenizer_is_said(tmp_path):
    with pytest.raises(ModelError, match="has no tokenizer"):
        ChatTokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="is no tokenizer"):
        ChatTokenizer(tmp_path)
