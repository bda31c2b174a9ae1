"""Signs that xberg takes for ligatures.

Fonts of old programs have their ligatures at the codes of `!`, `"` and `#`, so it writes `fi` for a
`#` or `!` before a small letter and `ffi` for a `"` between two: "#hashtag" becomes "fihashtag".
"""

import re
from collections import Counter
from collections.abc import Sequence

_SIGN = re.compile(r"[#!](?=[a-z])|(?<=[a-z])\"(?=[a-z])")
_WORD = re.compile(r"[\w#!\"]+")
_WITHIN = re.compile(r"[a-z][#!\"][a-z]")
_LIGATURE = re.compile("fi|[\ufb00-\ufb04]")


def undone(pages: Sequence[str], plain: Sequence[str]) -> list[str]:
    """The Markdown of pages with these signs where their `plain` text has them, unless they stand
    for ligatures in it: then there are more of them within its words than ligatures."""
    signs = sum(len(_WITHIN.findall(text)) for text in plain)
    if signs and signs >= sum(len(_LIGATURE.findall(text)) for text in plain):
        return list(pages)
    return [_undone(text, said) for text, said in zip(pages, plain, strict=True)]


def _undone(text: str, said: str) -> str:
    if not _SIGN.search(said):
        return text
    words = Counter(_WORD.findall(said))
    written: dict[str, str] = {}
    for word in words:
        other = _SIGN.sub(lambda sign: "ffi" if sign[0] == '"' else "fi", word)
        if other != word and other not in words:
            written[other] = word
    return _WORD.sub(lambda word: written.get(word[0], word[0]), text)
