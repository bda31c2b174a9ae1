"""Things that are broken, and a provider that is down."""

import pytest

from recollect.connectors import api
from recollect.connectors.api import PROVIDER_UNAVAILABLE, Patience
from recollect.errors import Transient

HANGS = Transient("no answer", code=PROVIDER_UNAVAILABLE)


def test_things_that_give_no_answer_for_long_end_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "LONGEST_TROUBLE", 0.0)
    patience = Patience(lambda: None)

    for _ in range(5):
        patience.failed(HANGS)
        patience.succeeded()
    patience.failed(HANGS)
    with pytest.raises(Transient):
        patience.failed(HANGS)


def test_of_many_that_fail_at_once_a_hundred_end_the_sync() -> None:
    asked: list[int] = []
    patience = Patience(lambda: asked.append(1))

    for _ in range(api.MOST_FAILURES):
        patience.failed(HANGS)
    with pytest.raises(Transient):
        patience.failed(HANGS)
    assert len(asked) == api.MOST_FAILURES // api.PATIENCE
