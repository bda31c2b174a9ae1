"""What people read about Gmail, and the form of its metadata."""

from recollect.connectors.about import Field, Guide

GUIDE = Guide(
    "Threads of a mailbox, each with the whole conversation.",
    "a Google account",
    (
        Field(
            "q",
            "Search",
            "As in Gmail's own search field; only threads that match are followed.",
            placeholder="newer_than:2y -category:promotions",
        ),
        Field("labelIds", "Labels", "Ids of labels, one on a line.", kind="lines"),
        Field(
            "pubsubTopic",
            "Pub/Sub topic",
            "For mails to arrive at once; without it they are looked for every few minutes.",
            placeholder="projects/PROJECT/topics/TOPIC",
        ),
    ),
    if_nothing="The mailbox has no threads, or the search and the labels admit none.",
)
