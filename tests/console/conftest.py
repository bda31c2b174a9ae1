"""One console for all tests of this folder."""

from collections.abc import Generator

import pytest

from recollect.app import App
from tests.console.test_console import console_site


@pytest.fixture(scope="session")
def site(app: App) -> Generator[str]:
    with console_site(app) as url:
        yield url
