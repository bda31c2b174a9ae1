"""A user at a shell, for these tests, too."""

from tests.e2e.conftest import starter

__all__ = ["starter"]
