"""A few texts to try the service with: by `recollect quickstart`, and in the console."""

from importlib import resources

TAG = "quickstart"
QUESTION = "is anything lost when the power fails"
"""What one text of the sample answers, in words that it shares in part."""
FIRST = "interruptions.md"
"""The text that answers it; it is brought in before the others."""


def texts() -> dict[str, str]:
    """By file name; the one that is asked for first."""
    folder = resources.files("recollect.ingest") / "sample"
    names = sorted((file.name for file in folder.iterdir()), key=lambda name: (name != FIRST, name))
    return {name: (folder / name).read_text("utf-8") for name in names if name.endswith(".md")}


def custom_id(name: str) -> str:
    """Adding the sample again brings the same documents up to date."""
    return f"quickstart/{name}"
