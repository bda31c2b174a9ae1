"""How wide a walk through the HNSW index is, and of how many rounds."""

WIDTH, LEAST_WIDTH, MOST_WIDTH = 400, 100, 1_000
"""Of a walk (`hnsw.ef_search`), where everything is in scope; of a fifth, the ten nearest are the
fifty nearest of everything, and a wider walk finds as many of them. The most is pgvector's own."""
WIDE_TO, WIDENING = 100_000, 0.4
"""In more entries than that, the same width finds fewer of the nearest: it grows with that power of
them, to 1,000 at a million (docs/bench.md)."""
ROUNDS, ROUNDS_GROW, ROUNDS_NARROW, MOST_ROUNDS = 2, 0.5, 0.3, 6
"""How many rounds a walk through a million entries takes when everything matches; each begins where
the one before ended. The number grows with the first power of the entries, and with the second one
of how many there are for each that matches, up to `MOST_ROUNDS`. One round finds 0.93 of the ten
nearest of everything and 0.90 of a fifth's, two find 0.96, and three 0.96 (docs/bench.md)."""
SURPLUS = 1.1
"""How many more are asked for than the rounds before the last one find on average."""
ROUND_VISITS = 20_000
"""About as many entries as a round looks at, at most."""


def width(everywhere: int, matching: int, shards: int) -> int:
    """`hnsw.ef_search` of a walk to those of all entries that match, in each of the shards."""
    usual = WIDTH * max(1.0, everywhere / WIDE_TO) ** WIDENING
    usual = max(LEAST_WIDTH, usual / shards)
    return round(min(MOST_WIDTH, usual * max(1.0, everywhere / max(matching, 1))))


def rounds(everywhere: int, matching: int, shards: int) -> int:
    """How many rounds such a walk takes, in each of the shards."""
    there = max(0, everywhere)  # -1 where nobody has counted yet
    large = (there / shards / (10 * WIDE_TO)) ** ROUNDS_GROW
    narrow = (there / max(matching, 1)) ** ROUNDS_NARROW
    return max(1, min(MOST_ROUNDS, round(ROUNDS * large * narrow)))
