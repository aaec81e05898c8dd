"""Every key of a model is in docs/models.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import pytest
from pages import read, rows, section

from velodrome.responses_api_models.local_model.app import _SETTINGS as LOCAL
from velodrome.responses_api_models.openai_model.settings import _CHECKS as OPENAI
from velodrome.responses_api_models.scripted_model.app import SETTINGS as SCRIPTED
from velodrome.responses_api_models.scripted_model.faults import Fault


@pytest.mark.parametrize(
    ("heading", "keys"), [("openai_model", OPENAI), ("local_model", LOCAL), ("scripted_model", SCRIPTED)]
)
def test_every_key_of_a_model_is_documented(heading: str, keys: Sequence[str]):
    own = section(read("models.md"), heading).partition("\n### ")[0]
    assert rows(own).keys() == set(keys)


def test_every_key_of_a_scripted_fault_is_documented():
    assert rows(section(read("models.md"), "Faults")).keys() == {field.name for field in fields(Fault)}
