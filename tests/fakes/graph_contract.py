"""Microsoft's own client as the judge of what goes to Graph: addresses, parameters, field names.

The wheel of `msgraph-sdk` is made by a machine from Graph's metadata: a URL template for each
address, with the `$` parameters that it takes, and a model for each type. It is read as a zip and
never installed (447 MB) or imported. Pinned by version and hash, fetched once by pip (29 MB), kept
in pytest's cache; where it cannot be had the test is skipped with the reason.
"""

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

VERSION = "1.65.0"
SHA256 = "543975b8ea5c6c94ac443be03a6f2429a6a6d7c1c4b90f08c382f211937f3dc1"
WHEEL = f"msgraph_sdk-{VERSION}-py3-none-any.whl"
TEMPLATE = re.compile(r'super\(\)\.__init__\(request_adapter, "\{\+baseurl\}([^"{?]*[^"]*)"')
OPTIONS = re.compile(r"\{\?([^}]*)\}")
JSON_NAME = re.compile(r'^\s+"(@?[\w.]+)": lambda n ?:', re.MULTILINE)
BUILDERS = (
    "subscriptions/subscriptions_request_builder.py",
    "subscriptions/item/subscription_item_request_builder.py",
    "users/item/user_item_request_builder.py",
    "drives/item/items/item/drive_item_item_request_builder.py",
    "drives/item/items/item/children/children_request_builder.py",
    "drives/item/items/item/content/content_request_builder.py",
    "drives/item/items/item/delta/delta_request_builder.py",
)
# What `me` and `root` are short for: the client itself has no builders below /me/drive.
SHORT = (
    (re.compile(r"^/me/drive/root/delta$"), "/drives/own/items/root/delta()"),
    (re.compile(r"^/me/drive/"), "/drives/own/"),
    (re.compile(r"^/me$"), "/users/me"),
)


class Sdk:
    """`check_…` return sentences, none if all is well."""

    def __init__(self, wheel: Path) -> None:
        self._wheel = zipfile.ZipFile(wheel)

    def check_request(self, target: str) -> list[str]:
        """`target` is path and query of a GET or POST, as they were sent."""
        parts = urlsplit(target)
        path = parts.path.removeprefix("/v1.0")
        for short, long in SHORT:
            path = short.sub(long, path)
        for pattern, options in self._templates:
            if pattern.fullmatch(path):
                asked = dict(parse_qsl(parts.query, keep_blank_values=True))
                return [f"{path} takes no {name}" for name in asked if name not in options]
        return [f"{path} is no address of Graph's"]

    def check_fields(self, model: str, names: Iterator[str] | list[str]) -> list[str]:
        """Names in `$select`, or of what is posted, by the model's file (`drive_item`)."""
        known = self._fields(model)
        return [f"{model} has no {name}" for name in names if name not in known]

    @cached_property
    def _templates(self) -> list[tuple[re.Pattern[str], frozenset[str]]]:
        return [self._template(name) for name in BUILDERS]

    def _template(self, name: str) -> tuple[re.Pattern[str], frozenset[str]]:
        found = TEMPLATE.search(self._read(name))
        assert found, f"{name} has no template"
        options = OPTIONS.search(found[1])
        names = unquote(options[1]).rstrip("*").split(",") if options else []
        path = OPTIONS.sub("", found[1])
        pattern = "[^/]+".join(re.escape(part) for part in re.split(r"\{[^}]*\}", path))
        return re.compile(pattern), frozenset(names)

    def _fields(self, model: str) -> frozenset[str]:
        source = self._read(f"models/{model}.py")
        own = frozenset(JSON_NAME.findall(source))
        assert own, f"{model} names no fields"
        base = re.search(r"^class \w+\((\w+)", source, re.MULTILINE)
        if base is None or base[1] in ("AdditionalDataHolder", "Parsable"):
            return own
        return own | self._fields(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", base[1]).lower())

    def _read(self, name: str) -> str:
        return self._wheel.read(f"msgraph/generated/{name}").decode()


def get_sdk(cache: pytest.Cache) -> Sdk:
    folder = cache.mkdir("msgraph-sdk")
    wheel = folder / WHEEL
    if not _is_whole(wheel):
        pins = folder / "requirements.txt"
        pins.write_text(f"msgraph-sdk=={VERSION} --hash=sha256:{SHA256}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--require-hashes", "--timeout=20", "--retries=1"]
        try:
            done = subprocess.run(
                [*command, "-r", str(pins), "-d", str(folder)],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"the wheel of msgraph-sdk cannot be had here: {error}")
        if done.returncode:
            pytest.skip(f"the wheel of msgraph-sdk cannot be had here: {done.stderr[-300:]}")
    assert _is_whole(wheel)
    return Sdk(wheel)


def _is_whole(wheel: Path) -> bool:
    return wheel.exists() and hashlib.sha256(wheel.read_bytes()).hexdigest() == SHA256


def keys_of(body: bytes) -> list[str]:
    """Names of the fields of a JSON object."""
    return list(json.loads(body))
