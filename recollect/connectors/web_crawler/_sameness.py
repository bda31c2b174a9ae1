"""Whether most of a site leads to one page: a login page, or a notice of maintenance."""

from collections import Counter
from collections.abc import Collection, Sequence

from recollect.connectors.base import ONE_PAGE, Trouble

FEWEST = 3
"""pages that lead to one before that means anything"""


class Sameness:
    """Of the paths of a site: which redirect to, or say the same as, the page of another path.

    Queries count for documents only: `/login?next=/a` and `/login?next=/b` are one page.
    """

    def __init__(self, start: str) -> None:
        self._start = _path(start)
        self._leads: dict[str, str | None] = {}
        """path, or address of a document → the path it leads to; None: it has a text of its own"""
        self._settled: set[str] = set()
        """those that led there in an earlier crawl, when they had no document either"""

    def add(
        self,
        url: str,
        target: str | None,
        *,
        had: bool = False,
        retired: bool = False,
        again: bool = False,
    ) -> None:
        """What one address leads to, if that is another one.

        `had`: it came with a document. `retired`: it redirects and has no document. To the start
        page, that is what many sites do with pages that they gave up. `again`: it has no document,
        and an earlier crawl was told the same.
        """
        onward = None if target is None or target == url else _path(target)
        if retired and onward == self._start:
            return
        page = url if had else _path(url)
        self._leads[page] = None if onward == page else onward
        if again:
            self._settled.add(page)

    def trouble(self, notices: Collection[str]) -> Trouble | None:
        """What to say if one page stands for most of them, or one of the `notices` for some. A
        notice is given as the page on which it was found first.

        Paths that have long led elsewhere count only where nothing else is left of the site.
        """
        own = sum(target is None for target in self._leads.values())
        leads = {
            path: target
            for path, target in self._leads.items()
            if own <= 1 or path not in self._settled
        }
        told = {_path(notice) for notice in notices}
        counted = Counter(target for target in leads.values() if target is not None)
        shown = [target for target, _ in counted.most_common() if target in told]
        if shown:
            alike = sum(page in notices or target in told for page, target in leads.items())
            return _trouble(alike, len(leads), shown)
        for target, number in counted.most_common(1):
            if number >= FEWEST and number * 2 > len(leads):
                return _trouble(number, len(leads), [target])
        return None


def _trouble(number: int, of: int, targets: Sequence[str]) -> Trouble:
    others = f" or {len(targets) - 1:,} other pages," if len(targets) > 1 else ""
    return Trouble(
        f"{number:,} of {of:,} pages redirect to {targets[0]}{others} or say nearly the same. It"
        " may be a login page, which the crawler cannot pass, or a notice of maintenance."
        " Documents that these pages had are deleted or replaced when another sync, a day or more"
        " later, does not find their texts either. To keep those that are still there, pause the"
        " connection until the site has been checked.",
        ONE_PAGE,
    )


def _path(url: str) -> str:
    return url.partition("?")[0]
