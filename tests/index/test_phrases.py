"""How a query is read: what is a phrase, what is excluded, and what stays as it was typed."""

from itertools import product

import pytest

from recollect.errors import BadRequestError
from recollect.index import languages, phrases, terms


def shown(some: object) -> list[str]:
    """The first form of each word of each phrase, without its language."""
    assert isinstance(some, list)
    return [" ".join(word[0].rpartition(":")[2] for word in one.words) for one in some]


@pytest.mark.parametrize(
    ("query", "text", "held", "away"),
    [
        ('frogs "to be or not"', "frogs to be or not", ["to be or not"], []),
        ("“exact words” here", "exact words here", ["exact word"], []),
        ("frogs -toads", "frogs", [], ["toad"]),
        ('frogs -"green toads"', "frogs", [], ["green toad"]),
        ("bar -foo-bar", "bar", [], ["foo bar"]),
        ('a -b "c d" -"e f"', "a c d", ["c d"], ["b", "e f"]),
        ('frogs -"2024-03-17"', "frogs", [], ["2024 03 17"]),
        ('東京 "大阪" -京都', "東京 大阪", ["大 阪"], ["京 都"]),
        ('東京"大阪"', "東京 大阪", ["大 阪"], []),
        ('"-word"', "-word", ["word"], []),
        ('-"C#" C++', "C++", [], ["c#"]),
    ],
)
def test_marks_are_read(query: str, text: str, held: list[str], away: list[str]):
    reading = phrases.read(query)

    assert (reading.text, shown(reading.phrases), shown(reading.excluded)) == (text, held, away)


@pytest.mark.parametrize(
    "query",
    [
        '"unclosed frogs',
        'frogs"',
        'a 5" and a 3" disk',
        "ls --all",
        "at -1 degrees and -3.5",
        "foo-bar",
        "a - b",
        "2019 -2020",
        '"" "!!" frogs',
        "frogs -",
        "(-x)",
        "-_private",
        "-",
        "--",
        '"',
    ],
)
def test_what_is_no_mark_stays_as_it_was_typed(query: str):
    assert phrases.read(query) == phrases.Reading(query)


@pytest.mark.parametrize("query", ["-frogs", '-"green frogs"', " -a  -b "])
def test_to_say_only_what_must_not_be_there_is_refused(query: str):
    with pytest.raises(BadRequestError, match="only what must not be there"):
        phrases.read(query)


def test_too_much_is_refused():
    assert len(phrases.read("x " + "-a " * phrases.MOST).excluded) == phrases.MOST
    with pytest.raises(BadRequestError, match="at most 64 words"):
        phrases.read("x " + "-a " * (phrases.MOST + 1))


@pytest.mark.parametrize(
    ("phrase", "text", "stands"),
    [
        ("to be or not", "To be, or not to be.", True),
        ("or to be not", "To be, or not to be.", False),
        ("running horses", "A horse: running horse!", True),
        ("résumé", "the resume", True),
        ("resume of", "the Résumé of", True),
        ("getUserById", "x = getuserbyid(1)", True),
        ("user by id", "x = getUserById(1)", False),
        ("user", "x = getUserById(1)", True),
        ("well known", "it is well-known", True),
        ("v1.2.3 came", "Then v1.2.3 came.", True),
        ("v1.2.3 came", "Then v1.2.4 came.", False),
        ("C++ code", "C code", False),
        ("大阪", "東京大阪", True),
        ("阪東", "東京大阪", False),
        ("สวัสดี", "พูดว่าสวัสดีครับ", True),
        ("שלום עולם", "אמר שלום עולם", True),
        ("رقم 4567", "فاتورة رقم ٤٥٦٧", True),
        ("رقم 4567", "فاتورة رقم ٤٥٦٨", False),
        ("संख्या ४५६७", "बिल संख्या 4567 है", True),
        ("soft hyphen", "a so\u00adft hy\u00adphen", True),
        ("a", "", False),
        ("über uns", "Lesen Sie mehr ueber uns und die Firma.", True),
        ("Äpfel und Birnen", "Wir haben Aepfel und Birnen in der Kiste.", True),
        ("hard werken", "Hij heeft in de fabriek hard gewerkt en dat is het.", True),
        ("lie about", "He was lying about the money and then he was gone.", True),
    ],
)
def test_a_phrase_is_compared_as_words_are_indexed(phrase: str, text: str, stands: bool):
    [one] = phrases.read(f'"{phrase}"').phrases

    assert one.stands_in(text) is stands


def test_no_word_is_passed_over_because_its_stem_begins_otherwise():
    """Whether a token may be a word is asked before it is stemmed, in every language."""
    syllables = ["".join(one) for one in product("bcdfghjklmnpqrstvwxyz", "aeiouy")]
    words = [
        *map("".join, product(syllables, syllables)),
        *map("".join, product("aeiouy", syllables)),
    ]
    words += [f"{prefix}{one}en" for prefix in ("ge", "ae", "oe", "ue") for one in syllables]
    words += ["dying", "lying", "tying"]
    for language in languages.LATIN:
        passed_over = [
            word
            for word in words
            for term in terms.stems_of(word, language)
            if terms.beginning(word) not in terms.beginnings([[term]])
        ]
        assert not passed_over, language


@pytest.mark.parametrize(
    "text",
    [
        "The quick brown fox's getUserById(foo.bar_baz) at 2024-03-17, v1.2.3: C++ and C#!",
        "Die schönen Häuser der Großmütter in 東京都庁 kosten 5 €/m² — так и быть 🙂🙂",
        "ada@example.com, src/app.py, U.S.A., MAX_VALUE, iPhone15 and ISO 27001",
    ],
)
def test_every_word_of_a_phrase_is_indexed_where_the_phrase_stands(text: str):
    """Else the index would not find what the reading of texts then confirms."""
    held = set(terms.stems(text))
    tokens = terms.tokens(text)

    for start in range(len(tokens)):
        for end in range(start + 1, len(tokens) + 1):
            [one] = phrases.read(f'"{" ".join(tokens[start:end])}"').phrases
            assert one.stands_in(text), tokens[start:end]
            assert all(held.intersection(word) for word in one.words)
