"""A person's edit: what was typed stays with its kernel, and an edit runs as one."""

import pytest

import kernels
from kernels import InputError
from playground.engine import edits
from playground.engine.messages import Failure, Request
from playground.ui.answer import Answer
from playground.ui.tabs.run import edit_sheet, lesson, view, visit
from playground.ui.tabs.run.edit_sheet import Texts
from playground.ui.tabs.run.visit import Visit
from tests.ui.samples import answer

ADD, NORM = (edits.source_of(kernels.get(name)) for name in ("vector_add", "rms_norm"))


def test_what_was_typed_stays_with_its_kernel():
    now, text = Texts().turned("vector_add", "")
    assert text == ADD
    now, text = now.turned("rms_norm", "mine")
    assert text == NORM
    now, text = now.turned("vector_add", "mine too")
    assert text == "mine"
    assert now.turned("rms_norm", "mine")[1] == "mine too"
    assert now.turned("vector_add", " ")[1] == " " and now.turned("vector_add", "")[1] == ADD  # emptied: begin again


def test_an_edit_goes_with_the_choice_and_a_text_without_one_is_refused():
    asked = Request(kernel="vector_add", dims={"n": 5})
    assert edit_sheet.with_edit(asked, ADD + "# mine") == asked.model_copy(update={"source": ADD + "# mine"})
    with pytest.raises(InputError, match="change a line of it"):
        edit_sheet.with_edit(asked, ADD + "\n")


def test_a_mistake_in_an_edit_is_mended_in_the_edit():
    failed = Failure(kind="input", message="line 7: '(' was never closed", argument="source")
    asked = Request(kernel="vector_add", dims={"n": 5}, source=ADD + "(")
    assert "Mend the edit, and run it again." in view.banner(Answer(asked, failure=failed))
    assert "the edit" not in view.banner(Answer(Request(kernel="vector_add", dims={"n": 5}), failure=failed))


def test_an_edited_run_shows_what_was_changed_and_is_listed_as_one():
    found = answer()
    text = edits.source_of(kernels.get(found.request.kernel))
    found.request.__dict__["source"] = text.replace("keep_dims=True", "keep_dims=1", 1)
    shown = lesson.note(kernels.get(found.request.kernel), found.request, found.run)
    assert "Your edit" in shown and shown.count('class="ins"') == 1 and "keep_dims=1" in shown
    assert "<small>edited</small>" in visit.listing(Visit().added(found))
    assert "edited" not in visit.listing(Visit().added(answer()))
