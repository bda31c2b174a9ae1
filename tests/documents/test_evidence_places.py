"""Where quotes of memories stand in the chunks of a changed document."""

from recollect.documents import places_of
from recollect.model import Chunk


def chunks(*texts: str) -> list[Chunk]:
    return [Chunk(n, 0, len(text), text, bytes([n])) for n, text in enumerate(texts)]


def test_each_quote_is_found_in_the_first_chunk_that_holds_it():
    there = chunks("herons wade", "storks fly", "storks fly")

    assert places_of({"herons", "wade", "fly", "storks fly"}, there) == {
        "herons": (b"\0", 0),
        "wade": (b"\0", 7),
        "fly": (b"\1", 7),
        "storks fly": (b"\1", 0),
    }


def test_a_quote_across_two_chunks_or_in_none_has_no_place():
    assert places_of({"wadestorks", "gulls"}, chunks("herons wade", "storks fly")) == {
        "wadestorks": None,
        "gulls": None,
    }
    assert places_of({"gulls"}, []) == {"gulls": None}
