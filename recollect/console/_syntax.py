"""Colours of code: where comments, strings, numbers and keywords stand, in one pass.

One pattern for a family of languages, and each of its parts takes what is open to its end: no text
makes it go back. (The lexers of libraries know far more, and some can be kept busy for minutes by a
line that was made for it; this runs in the service, on texts of strangers.)
"""

import re
from collections.abc import Mapping

_SLASH = r"//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)"
_HASH = r"#[^\n]*"
_QUOTED = r'"(?:[^"\\\n]|\\.)*"?'
_TICKED = r"'(?:[^'\\\n]|\\.)*'?"
_LONG = r'"""[\s\S]*?(?:"""|\Z)|\'\'\'[\s\S]*?(?:\'\'\'|\Z)'
_RAW = r"`[^`]*`?"
_LETTER = r"'(?:\\[^'\n]{1,8}|[^\\'\n])'"
_GRAMMARS: Mapping[str, tuple[str, str, str]] = {
    "slash": (
        "js mjs cjs jsx ts tsx go php swift dart scala kt java c h cc cpp hpp cs proto m gradle"
        " javascript typescript golang kotlin csharp c++ objc scss less",
        _SLASH,
        f"{_QUOTED}|{_TICKED}|{_RAW}",
    ),
    "rust": ("rs rust", _SLASH, f"{_QUOTED}|{_LETTER}"),
    "css": ("css", r"/\*[\s\S]*?(?:\*/|\Z)", f"{_QUOTED}|{_TICKED}"),
    "hash": (
        "py pyi python rb ruby sh bash zsh fish shell console yaml yml toml ini cfg conf r jl pl ex"
        " exs cmake tf graphql dockerfile makefile ps1 powershell elixir perl julia",
        _HASH,
        f"{_LONG}|{_QUOTED}|{_TICKED}",
    ),
    "dash": ("sql lua hs haskell", r"--[^\n]*", f"{_QUOTED}|{_TICKED}"),
    "json": ("json jsonc ipynb", r"//[^\n]*", _QUOTED),
}
"""By family: the languages, their comments and their strings. What is open stays open to its end,
so that no search is made twice."""
_FAMILIES: Mapping[str, str] = {
    language: family for family, (names, _, _) in _GRAMMARS.items() for language in names.split()
}
_TOKENS: Mapping[str, re.Pattern[str]] = {
    family: re.compile(
        rf"(?P<remark>{remark})|(?P<string>{string})|(?P<number>\b\d[\w.]*)|(?P<word>[^\W\d]\w*)"
    )
    for family, (_, remark, string) in _GRAMMARS.items()
}
_WORDS = (
    "abstract and as async await bool break case catch char class const continue declare def"
    " default defer del delete do done double elif else elsif end enum esac except export extends"
    " extern false False fi final finally float fn for foreach from func function global go if impl"
    " implements import in include instanceof int interface internal is lambda let local long loop"
    " match mod module mut namespace new nil None nonlocal not null or override package pass"
    " private protected pub public raise readonly record ref require return self sealed select"
    " short signed sizeof static string struct super switch template then this throw throws trait"
    " true True try type typedef typeof union unless unsigned until use using val var virtual void"
    " volatile when where while with yield"
    " SELECT FROM WHERE AND OR NOT INSERT INTO UPDATE DELETE CREATE TABLE INDEX ALTER DROP JOIN"
    " LEFT RIGHT INNER OUTER ON GROUP ORDER BY HAVING LIMIT VALUES SET NULL PRIMARY KEY FOREIGN"
    " REFERENCES UNIQUE DISTINCT UNION ALL AS IN IS LIKE BETWEEN EXISTS CASE WHEN THEN ELSE END"
    " BEGIN COMMIT ROLLBACK DEFAULT CONSTRAINT RETURNING"
)
_KEYWORDS = frozenset(_WORDS.split())
Colour = tuple[int, int, str]
"""from, to, and what stands there: remark, string, number or keyword"""


def colours(code: str, language: str) -> list[Colour]:
    """In order; none of a language that is not known (`py`, `python`, …)."""
    family = _FAMILIES.get(language)
    if family is None:
        return []
    found: list[Colour] = []
    for token in _TOKENS[family].finditer(code):
        sort = token.lastgroup or ""
        if sort != "word":
            found.append((token.start(), token.end(), sort))
        elif token[0] in _KEYWORDS:
            found.append((token.start(), token.end(), "keyword"))
    return found
