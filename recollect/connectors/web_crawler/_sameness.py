"""Whether most of a site leads to one page: a login page, or a notice of maintenance."""

from collections import Counter

from recollect.connectors.base import Trouble

FEWEST = 3
"""paths that lead to one page before that means anything"""


class Sameness:
    """Of the paths of a site: which redirect to, or say the same as, the page of another path.

    Queries do not count: `/login?next=/a` and `/login?next=/b` are one page.
    """

    def __init__(self, start: str) -> None:
        self._start = _path(start)
        self._leads: dict[str, str | None] = {}
        """path → the path it leads to; None: it has a text of its own"""

    def add(self, url: str, target: str | None, *, retired: bool = False) -> None:
        """What one address leads to, if that is another one.

        `retired`: it redirects and has no document. To the start page, that is what many sites do
        with pages that they gave up.
        """
        path, onward = _path(url), None if target is None else _path(target)
        own = onward == path or (retired and onward == self._start)
        self._leads[path] = None if own else onward

    def trouble(self) -> Trouble | None:
        """What to say if one page stands for most of them."""
        counted = Counter(target for target in self._leads.values() if target is not None)
        for target, number in counted.most_common(1):
            if number >= FEWEST and number * 2 > len(self._leads):
                return Trouble(
                    f"{number:,} of {len(self._leads):,} pages redirect to {target} or say the"
                    " same. It may be a login page, which the crawler cannot pass, or a notice of"
                    " maintenance. Documents that these pages had are deleted when a sync a day"
                    " later or more sees the same. Pause the connection to keep them until the"
                    " site has been checked.",
                    "one_page",
                )
        return None


def _path(url: str) -> str:
    return url.partition("?")[0]
