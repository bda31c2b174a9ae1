"""A few texts to try the service with: by `recollect quickstart`, and in the console."""

from importlib import resources
from string import Template

from recollect import connectors

TAG = "quickstart"
QUESTION = "is anything lost when the power fails"
"""What one text of the sample answers, in words that it shares in part."""
FIRST = "interruptions.md"
"""The text that answers it; it is brought in before the others."""


def texts() -> dict[str, str]:
    """By file name; the one that is asked for first."""
    folder = resources.files("recollect.ingest") / "sample"
    names = sorted((file.name for file in folder.iterdir()), key=lambda name: (name != FIRST, name))
    example = connectors.example()
    given = "".join(f" --set {key}={value}" for key, value in example.guide.example.items())
    known = {
        "sources": ", ".join(one.name for one in connectors.all().values()),
        "example": example.provider + given,
    }
    return {
        name: Template((folder / name).read_text("utf-8")).safe_substitute(known)
        for name in names
        if name.endswith(".md")
    }


def custom_id(name: str) -> str:
    """Adding the sample again brings the same documents up to date."""
    return f"quickstart/{name}"
