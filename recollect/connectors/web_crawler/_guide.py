"""What people read about the crawler, and the form of its metadata."""

from recollect.connectors.about import Field, Guide

GUIDE = Guide(
    "Pages of one host, as Markdown.",
    "a URL; nothing to authorize",
    (
        Field(
            "startUrl",
            "Start page",
            "The crawl begins here and stays on this host.",
            kind="url",
            required=True,
            placeholder="https://docs.example.org/",
            in_config=True,
        ),
        Field(
            "crawlDepth",
            "Depth",
            "How many links away from the start page, 1 to 5. With a depth, sitemaps are not read.",
            kind="number",
            in_config=True,
            config_default=3,
        ),
        Field(
            "includePatterns",
            "Only these addresses",
            "One on a line; * stands for anything.",
            kind="lines",
            placeholder="https://docs.example.org/guide/*",
        ),
        Field(
            "excludePatterns",
            "Not these addresses",
            "One on a line; * stands for anything. Wins over the others.",
            kind="lines",
        ),
    ),
    example={"startUrl": "https://docs.example.org"},
    invitation="Crawl a site",
)
