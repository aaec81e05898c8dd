"""Where repeats of one task diverge: the first message, and the first word in it."""

from __future__ import annotations

from velodrome.viewer.parts.dialogue import Argument, Call, ShownMessage
from velodrome.viewer.parts.difference import Step, divergence


def said(*texts: str) -> list[ShownMessage]:
    return [ShownMessage("assistant", text) for text in texts]


def step(kind: str, same: str, word: str = "", rest: str = "", more: int = 0) -> Step:
    return Step("assistant", kind, same, word, rest, more)


def test_the_first_word_that_differs_is_found_behind_what_all_have_in_common():
    result = divergence(
        [said("Hm.", "It is 36 in all.", "Bye"), said("Hm.", "It is 38."), said("Hm.", "It is 36 in sum.")]
    )
    assert (result.message, result.word) == (1, 2)
    assert result.repeats == [
        [step("same", "Hm."), step("diverging", "It is", " 36", " in all."), step("after", "Bye")],
        [step("same", "Hm."), step("diverging", "It is", " 38.")],
        [step("same", "Hm."), step("diverging", "It is", " 36", " in sum.")],
    ]


def test_one_that_ends_earlier_parts_where_it_ends():
    result = divergence([said("a", "b"), said("a")])
    assert (result.message, result.word, [len(steps) for steps in result.repeats]) == (1, 0, [2, 1])
    shorter = divergence([said("It is 36"), said("It is 36 indeed")])
    assert [steps[0].word for steps in shorter.repeats] == ["", " indeed"]


def test_equal_ones_never_part_and_one_alone_has_nothing_to_part_from():
    same = divergence([said("a"), said("a")])
    assert (same.message, same.repeats) == (None, [[step("same", "a")], [step("same", "a")]])
    assert divergence([said("a")]).message is None
    assert divergence([]).repeats == []


def test_another_call_is_another_message():
    def call(expression: str) -> list[ShownMessage]:
        return [ShownMessage("assistant", calls=[Call("calculator", [Argument("expression", expression)], "4")])]

    result = divergence([call('"2 + 2"'), call('"2 * 2"')])
    assert (result.message, result.word) == (0, 2)
    assert [steps[0].word for steps in result.repeats] == [" +", " *"]
    assert result.repeats[0][0].label == "tool call"


def test_long_messages_are_shown_around_the_place_where_they_part():
    common = "word " * 3000
    result = divergence([said(common + "left " + "x" * 5000), said(common + "right")])
    assert result.word == 3000
    assert (result.repeats[0][0].word, result.repeats[0][0].more) == (" left", 4301)
    assert len(result.repeats[0][0].same) < 300
