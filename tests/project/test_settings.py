"""Environment variables become settings, or one line that names the variable and what it needs."""

import pytest

from playground.settings import Settings


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("GRADIO_SERVER_PORT", "http", "it needs a number"),
        ("GRADIO_SERVER_PORT", "nan", "it needs a number"),
        ("GRADIO_SERVER_PORT", "inf", "it needs a number"),
        ("PLAYGROUND_RUN_SECONDS", "soon", "it needs a number"),
        ("PLAYGROUND_RUN_SECONDS", "nan", "it needs a number above 0"),  # no time would ever be up
        ("PLAYGROUND_BENCH_SECONDS", "-1", "it needs a number above 0"),
        ("PLAYGROUND_EDIT", "yes", "it needs loopback or off"),
    ],
)
def test_a_value_that_cannot_be_is_one_line(name, text, words):
    with pytest.raises(ValueError) as refused:
        Settings.from_env({name: text})
    assert str(refused.value).startswith(f"{name} is ") and words in str(refused.value)


def test_what_is_set_counts_and_what_is_empty_does_not():
    given = {"GRADIO_SERVER_PORT": "8000", "PLAYGROUND_RUN_SECONDS": "1.5", "PLAYGROUND_BENCH_SECONDS": ""}
    found = Settings.from_env(given)
    assert (found.port, found.run_seconds, found.bench_seconds) == (8000, 1.5, Settings().bench_seconds)
