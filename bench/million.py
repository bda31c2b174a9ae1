"""`python -m bench.million [CHUNKS]`: what `python -m bench search` measures, of a million chunks.

200 tags of as many chunks each, in one organisation. Takes 3 GB of memory beside PostgreSQL's, 6 GB
of disk, and about 40 minutes for a million. `python -m bench search` is the same of 100,000.
"""

import sys
import time

from bench import search
from bench.figures import floors, table
from bench.ground import Ground

TAGS = 200


def main(chunks: int) -> None:
    each = chunks // TAGS
    # One of the tags is called as the others are in `search`: what recall in a tag is asked of.
    tags = {"big": each, **{f"tag-{n}": each for n in range(1, TAGS)}}
    size = search.Size(tags, others=1_000, orgs=1, passages=1_200, searches=60, recalls=40)
    started = time.monotonic()
    with Ground() as ground:
        print(table(list(search.measure(ground, size)), floors()))
    print(f"{chunks:,} chunks, {time.monotonic() - started:.0f} s in all")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 1_000_000)
