"""The source text that a recording is tied to: the same on every Python, blind to comments and layout."""

from playground.engine import fingerprint

CODE = '''
def f(x):
    """What f does."""
    name = f"{x!r:>{2 * x}} and {'more'}"  # 3.12 sees nine tokens here, 3.11 one
    return f"""{x}
    {name}""" + "plain"
'''


def test_an_f_string_is_one_token_on_every_python():
    assert """name = f"{x!r:>{2 * x}} and {'more'}" \n""" in fingerprint.bare(CODE)
    assert 'return f"""{x}\n    {name}""" + "plain" \n' in fingerprint.bare(CODE)


def test_comments_the_words_of_docstrings_and_layout_do_not_count():
    other = CODE.replace("What f does.", "Something else.").replace("# 3.12 sees", "# other words:")
    assert fingerprint.bare(CODE) == fingerprint.bare(other.replace("    name = f", "    name  =  f"))


def test_a_changed_string_counts():
    assert fingerprint.bare(CODE) != fingerprint.bare(CODE.replace("2 * x", "3 * x"))
