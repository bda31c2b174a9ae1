"""What people read about folders, and the form of their metadata."""

from recollect.connectors.about import Field, Guide

GUIDE = Guide(
    "Files of a folder on the machine of the service.",
    "a folder below RECOLLECT_FOLDERS; nothing to authorize",
    (
        Field(
            "path",
            "Folder",
            "From the root, on the machine of the service. Hidden files and links are left out.",
            required=True,
            placeholder="/srv/papers/handbook",
        ),
        Field(
            "includePatterns",
            "Only these files",
            "Paths within the folder, one on a line; * stands for anything.",
            kind="lines",
            placeholder="*.md",
        ),
        Field(
            "excludePatterns",
            "Not these files",
            "One on a line; * stands for anything. Wins over the others.",
            kind="lines",
            placeholder="drafts/*",
        ),
    ),
    example={"path": "/srv/papers"},
    if_nothing="The folder has no files, or the patterns admit none.",
)
