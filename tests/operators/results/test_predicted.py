"""A forecast as its annotation says it."""

from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import InputError
from operators.results.predicted import Prediction

AT = '"2023-11-14T22:13:20.000250Z"'


def test_a_forecast_is_read_and_shown():
    told = Prediction.from_json(f'{{"seconds": 12.3, "by": "allox", "at": {AT}}}', "EmuJob lab/j")
    assert told == Prediction(12.3, "allox", 1_700_000_000_000_250_000)
    assert told.to_status() == {"value": 12.3, "by": "allox", "at": "2023-11-14T22:13:20.000250Z"}
    assert Prediction.from_json(f'{{"seconds": 0, "by": "las", "at": {AT}}}', "x").seconds == 0.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("soon", "EmuJob lab/j"),
        ("[]", "EmuJob lab/j: must be an object"),
        (f'{{"by": "las", "at": {AT}}}', "EmuJob lab/j: seconds is missing"),
        (f'{{"seconds": "1", "by": "las", "at": {AT}}}', "seconds: must be a number of seconds from 0 on, not '1'"),
        (f'{{"seconds": true, "by": "las", "at": {AT}}}', "not True"),
        (f'{{"seconds": -1, "by": "las", "at": {AT}}}', "not -1"),
        (f'{{"seconds": 1e999, "by": "las", "at": {AT}}}', "seconds"),
        (f'{{"seconds": 1, "by": "", "at": {AT}}}', "by: must be a text of 1 to 63 characters"),
        ('{"seconds": 1, "by": "las", "at": "noon"}', "at: must be a time with its zone"),
        ('{"seconds": 1, "by": "las", "at": "2023-11-14T22:13:20"}', "at: must be a time with its zone"),
        (f'{{"seconds": 1, "by": "las", "at": {AT}, "sure": true}}', "unknown field 'sure'"),
    ],
)
def test_what_is_wrong_is_named(text, words):
    with pytest.raises(InputError) as caught:
        Prediction.from_json(text, "EmuJob lab/j")
    assert words in str(caught.value)
