"""An answer's text and its tokens' chances: stop texts cut it, and every probability is what the draw used."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from playground.decoder import Decoder, Setup
from playground.decoder.answer import Until
from playground.decoder.messages import ChatMessage, ChatRequest, ChatToken
from playground.decoder.sampler import Chances, Sampling
from tests.decoder import tiny

PIECES = st.lists(st.text("ab", max_size=3), max_size=8)
STOPS = st.lists(st.text("ab", min_size=1, max_size=4), max_size=3)


@given(PIECES, STOPS)
def test_text_ends_before_the_first_stop_text_however_it_is_cut(pieces, stops):
    until, text = Until(stops), "".join(pieces)
    got = "".join(until.push(piece) for piece in pieces) + until.flush()
    found = [text.find(stop) for stop in stops if stop in text]
    if not found:
        assert got == text and not until.met
    else:
        # What has been given out cannot be taken back: the stop text that is whole first decides.
        assert until.met and text.startswith(got) and any(text.startswith(got + stop) for stop in stops)
        ends = min(text.find(stop) + len(stop) for stop in stops if stop in text)
        assert len(got) < ends


def test_nothing_is_held_back_that_cannot_become_a_stop_text():
    until = Until(["\nUser:"])
    assert [until.push(piece) for piece in ("Hello", " \n", "Us", "e me")] == ["Hello", " ", "", "\nUse me"]


@pytest.fixture(scope="module")
def decoder():
    return Decoder.load(Setup(model=str(tiny.folder()), device="cpu", backend="torch"))


def ask(decoder, **options):
    *tokens, result = decoder.stream([{"role": "user", "content": "t5 t6 t7"}], **options)
    return tokens, result


def test_a_stop_text_ends_the_answer_and_is_left_out(decoder):
    _, whole = ask(decoder, max_tokens=20)
    words = whole.text.split()
    _, cut = ask(decoder, max_tokens=20, stop=(words[4],))
    assert cut.finish == "stop" and cut.text.split() == words[: words.index(words[4])]
    assert list(cut.ids) == list(whole.ids[: len(cut.ids)]) and len(cut.ids) <= 6
    assert decoder.batch.idle and "u" not in decoder.batch.pool.view().states


def plain_chances(logits, temperature, top_k, top_p):
    """Temperature, then top-k, then top-p, one after another in plain Python."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    weights = torch.tensor([logits[i] for i in order], dtype=torch.float64).div(temperature).softmax(-1).tolist()
    kept = weights[: top_k or len(weights)]
    total, before, most = sum(kept), 0.0, []
    for weight in kept:
        if most and before >= top_p * total:
            break
        most.append(weight)
        before += weight
    return {i: weight / sum(most) for i, weight in zip(order, most, strict=False)}


@pytest.mark.parametrize("options", [(1.0, 0, 1.0), (0.7, 8, 1.0), (1.4, 0, 0.8), (0.9, 12, 0.6)])
def test_chances_are_those_of_the_draw(options):
    logits = torch.randn(40, generator=torch.Generator().manual_seed(2))
    chances = Chances.of(logits, Sampling(*options))
    expected = plain_chances(logits.double().tolist(), *options)
    for token in range(40):
        chance, others = chances(token)
        assert chance.own == pytest.approx(float(logits.double().softmax(-1)[token]), rel=1e-5)
        assert chance.drawn == pytest.approx(expected.get(token, 0.0), rel=1e-6)
    assert [other.token for other in others] == logits.topk(5).indices.tolist()


def test_a_token_tells_its_chances_on_request_alone(decoder):
    options = {"max_tokens": 6, "temperature": 0.8, "top_k": 3, "seed": 4}
    plain, result = ask(decoder, **options)
    told, again = ask(decoder, **options, alternatives=True)
    assert again.ids == result.ids
    assert all(token.probability is None and not token.alternatives and not token.piece for token in plain)
    read = [1, 5, 6, 7, 1]
    for token in told:
        assert isinstance(token, ChatToken) and token.piece == f"t{token.id}" and len(token.alternatives) == 5
        logits = tiny.expected_logits(read)[-1]
        assert token.probability == pytest.approx(float(logits.softmax(-1)[token.id]), rel=1e-4)
        assert token.drawn == pytest.approx(plain_chances(logits.tolist(), 0.8, 3, 1.0)[token.id], rel=1e-4)
        assert sum(other.drawn for other in token.alternatives) == pytest.approx(1, rel=1e-6)
        read.append(token.id)


def test_a_message_names_what_it_takes():
    with pytest.raises(ValueError, match="table"):
        ChatRequest(messages=(ChatMessage(role="user", content="a"),), table={"norm": "numpy"})
