"""The filter language, as text becomes terms, or one clear line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from velodrome.errors import InputError
from velodrome.index.fields import FieldNames
from velodrome.index.query import Compared, Matched, Query, Sort, Words, typed


def test_terms_of_every_kind_are_told_apart():
    query = Query.parse('reward<1 tools >= 3 0 < pass_rate<=1 error:timeout -agent:x "some text" word start* repeat:0')
    assert query.terms == (
        Compared("reward", (("<", 1.0),), False, 1),
        Compared("tools", ((">=", 3.0),), False, 10),
        Compared("pass_rate", ((">", 0.0), ("<=", 1.0)), False, 25),
        Matched("error", ":", "timeout", False, 38),
        Matched("agent", ":", "x", True, 53),
        Words("some text", False, False, 61),
        Words("word", False, False, 73),
        Words("start", True, False, 78),
        Compared("repeat", (("=", 0.0),), False, 85),
    )


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("-1<reward", Compared("reward", ((">", -1.0),), False, 4)),
        ("-reward==1.5e-3", Compared("reward", (("=", 0.0015),), True, 2)),
        ("reward:none", Compared("reward", (), False, 1)),
        ("reward:*", Compared("reward", (), True, 1)),
        ('error:"say \\"hi\\""', Matched("error", ":", 'say "hi"', False, 1)),
        ("error:POST:http://x", Matched("error", ":", "POST:http://x", False, 1)),
        ("key=a/b/0", Matched("key", "=", "a/b/0", False, 1)),
        ('-"two words"', Words("two words", False, True, 2)),
        ("e-mail", Words("e-mail", False, False, 1)),
        ("-kind:*", Matched("kind", "*", "", True, 2)),
        ('kind:"*"', Matched("kind", ":", "*", False, 1)),
        ('-"3"!=x', Matched("3", "!=", "x", True, 2)),
        ('1<"my field"<=2', Compared("my field", ((">", 1.0), ("<=", 2.0)), False, 3)),
    ],
)
def test_one_term(text: str, term: object):
    assert Query.parse(text).terms == (term,)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("reward<", 'filter, at 7: nothing after "<"'),
        ("reward<1e999", 'filter, at 8: "1e999" is not a number'),
        ("<3", "filter, at 1: a field must come before"),
        ("reward<1<2", "filter, at 9: write the field between two bounds"),
        ("1<2<3", "filter, at 3: a numeric field must come after"),
        ("0<reward:1", 'filter, at 9: ":" is not allowed here'),
        ("error: timeout", 'filter, at 6: nothing after "error:"'),
        ("error>3", 'filter, at 6: "error" is a text'),
        ("state:faild", 'filter, at 7: no state "faild"; did you mean "failed"?'),
        ("reward:high", 'filter, at 1: "reward" is a number'),
        ('"open', "filter, at 1: a quote is not closed"),
        ("-", 'filter, at 1: nothing after "-"'),
        ("reward<1 ???", "filter, at 10: there is no word to search for"),
        ("hi!", 'filter, at 3: "!" is not understood here'),
        ("a " * 33, "filter: more than 32 terms"),
        ("a" * 2001, "filter: longer than 2000 characters"),
        ("reward<1 accuraci>0.5", 'filter, at 10: no field "accuraci"; did you mean "accuracy"?'),
        ("accuracy:high", 'filter, at 1: "accuracy" is a number'),
        ("kind>3", 'filter, at 1: "kind" is a text'),
    ],
)
def test_a_mistake_is_one_line_with_its_place(text: str, problem: str):
    with pytest.raises(InputError) as raised:
        Query.parse(text, FieldNames(("accuracy",), ("kind",)))
    assert [each.startswith(problem) for each in raised.value.problems] == [True]


@given(st.text(max_size=60) | st.text(alphabet='<>=!:"-* reward1.0\\', max_size=40))
def test_any_text_is_a_filter_or_one_line(text: str):
    try:
        problems = ["filter"] * bool(Query.parse(text))
    except InputError as error:
        problems = [problem.split(",")[0].split(":")[0] for problem in error.problems]
    assert problems == ["filter"]


def test_an_order_is_a_field_with_or_without_a_minus():
    orders = [Sort("reward", False), Sort("total_s", True), Sort("number", False)]
    assert [Sort.parse(text) for text in ("reward", "-total_s", "")] == orders
    assert str(orders[1]) == "-total_s"
    with pytest.raises(InputError, match='sort: nothing after "-"; sort by a field'):
        Sort.parse(" - ")


def test_a_character_that_cannot_be_seen_is_typed_by_its_code():
    shown = typed('error:"a\u202eb\x00" \u200bword')
    assert shown == 'error:"a\\u{202e}b\\u{0}" \\u{200b}word'
    matched, words = Query.parse(shown).terms
    assert (matched.value, words.words) == ("a\u202eb\x00", "\u200bword")  # type: ignore[union-attr]
    for kept in ("\\u{110000}", "\\u{d800}", "\\u{}", "\\u{41"):
        assert Query.parse(f"task={kept}").terms[0].value == kept  # type: ignore[union-attr]
    assert Query.parse(r'task="\\u{41}"').terms[0].value == r"\u{41}"  # type: ignore[union-attr]
    assert Sort.parse("-\\u{202e}x") == Sort("\u202ex", descending=True)
