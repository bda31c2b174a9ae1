"""What people read about GitHub, and the form of its metadata."""

from recollect.connectors.about import Field, Guide

GUIDE = Guide(
    "Documentation files of the repositories that you pick.",
    "a GitHub account; you choose the repositories afterwards",
    (
        Field(
            "visibility",
            "Repositories",
            "Public only asks GitHub for fewer rights.",
            kind="choice",
            choices=(("all", "private and public"), ("public", "public only")),
        ),
        Field(
            "webhooks",
            "Have GitHub report changes at once",
            "Registers a webhook in each repository; without it, changes are looked for.",
            kind="switch",
            default=True,
        ),
    ),
    if_nothing="Pick at least one repository that has documentation files on its default branch.",
)
