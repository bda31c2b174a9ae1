"""Which files of a folder `recollect add` takes: held to what Git says, and to the options."""

import os
import random
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from recollect.cli._add_choice import FileChoice
from recollect.cli._add_sources import AddReport, walk

NAMES = ("build", "src", "a.log", "b.txt", "keep.log", "x.d", "deep")
PATTERNS = (
    "*.log", "!keep.log", "build/", "build", "/build", "src/*.log", "**/deep", "deep/**", "x.d/*",
    "!x.d/b.txt", "/src/deep/", "[ab].*", "?.log", "!/a.log", "# comment", "", "\\!odd", "a.log  ",
    "**", "*", "!*/", "!*.txt", "src/**/a.log", "[", "!", "/", "b\\.txt", "[!a].txt", "*.d", "!x.d",
    "!*.d/", "/*", "!/src", "src/*", "!src/deep/", "*/", "!deep/**/b.txt", "a**", "**/src/**",
)  # fmt: skip


def grow(folder: Path, dice: random.Random, depth: int = 0) -> None:
    folder.mkdir(exist_ok=True)
    for name in NAMES:
        if "." in name and name != "x.d":
            (folder / name).write_text(name)
        elif depth < 2 and dice.random() < 0.6:
            grow(folder / name, dice, depth + 1)


def taken(root: Path, choice: FileChoice | None = None) -> set[str]:
    found = walk(root, choice)
    return {
        one.label.partition("/")[2] for one in found if not isinstance(one, AddReport)
    }  # without the name of the folder itself


def passed_over(root: Path, choice: FileChoice | None = None) -> dict[str, str | None]:
    found = walk(root, choice)
    return {one.source.partition("/")[2]: one.reason for one in found if isinstance(one, AddReport)}


def git(folder: Path, *arguments: str) -> list[str]:
    command = ["git", "-c", "core.excludesFile=/dev/null", "-c", "core.quotePath=false"]
    done = subprocess.run([*command, *arguments], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode().splitlines()


@pytest.mark.parametrize("seed", range(60))
def test_git_leaves_out_the_same_files(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    root = tmp_path / "tree"
    grow(root, dice)
    git(root, "init", "-q")
    folders = [root, *(path for path in sorted(root.rglob("*")) if path.is_dir())]
    folders = [folder for folder in folders if ".git" not in folder.parts]
    for folder in [root, *dice.sample(folders, min(2, len(folders)))]:
        lines = dice.sample(PATTERNS, dice.randint(1, 5))
        (folder / ".gitignore").write_text("\n".join(lines) + "\n")
    others = git(root, "ls-files", "--others", "--exclude-standard")

    assert taken(root) == {name for name in others if not name.endswith(".gitignore")}


def write(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_folder_inside_of_a_repository_obeys_it_unless_it_is_ignored_itself(
    tmp_path: Path,
) -> None:
    files = {".gitignore": "*.log\nout/\n/src/made\n", ".git/HEAD": "", "src/a.py": "1"}
    files |= {"src/a.log": "1", "src/made": "1", "out/b.py": "1", "out/b.log": "1"}
    root = write(tmp_path / "tree", files)

    assert taken(root / "src") == {"a.py"}
    assert taken(root / "out") == {"b.py", "b.log"}
    # What lies above a folder that is in no repository is nobody's word on it.
    (root / ".git" / "HEAD").unlink()
    (root / ".git").rmdir()
    assert taken(root / "src") == {"a.py", "a.log", "made"}


def test_options_choose_and_what_programs_made_is_never_added(tmp_path: Path) -> None:
    files = dict.fromkeys(("a.py", "a.log", "docs/b.md", "docs/b.log", "node_modules/c.js"), "1")
    files |= {"src/__pycache__/d.py": "1", "src/node_modules/e.js": "1", ".gitignore": "*.log\n"}
    root = write(tmp_path / "tree", files)

    assert passed_over(root) == {
        ".gitignore": "hidden",
        "a.log": ".gitignore",
        "docs/b.log": ".gitignore",
        "node_modules": "never added",
        "src/__pycache__": "never added",
        "src/node_modules": "never added",
    }
    everything = FileChoice.of(gitignore=False)
    assert taken(root, everything) == {"a.py", "a.log", "docs/b.md", "docs/b.log"}
    assert taken(root, FileChoice.of(exclude=["docs/"])) == {"a.py"}
    assert passed_over(root, FileChoice.of(exclude=["docs/"]))["docs"] == "--exclude"
    assert taken(root, FileChoice.of(exclude=["*.*", "!*.md"])) == {"docs/b.md"}
    assert taken(root, FileChoice.of(include=["*.md", "*.log"])) == {"docs/b.md"}
    assert taken(root, FileChoice.of(include=["docs/"])) == {"docs/b.md"}
    both = FileChoice.of(exclude=["b.*"], include=["*.log"], gitignore=False)
    assert taken(root, both) == {"a.log"}


def test_an_odd_gitignore_ends_nothing(tmp_path: Path) -> None:
    root = write(tmp_path / "tree", {"pipe/a.txt": "1", "link/a.txt": "1", "bytes/a.txt": "1"})
    os.mkfifo(root / "pipe" / ".gitignore")
    (tmp_path / "rules").write_text("*")
    (root / "link" / ".gitignore").symlink_to(tmp_path / "rules")
    (root / "bytes" / ".gitignore").write_bytes(b"\xff\xfe\x00*\r\n[z-a]\n\\\n*.md\r\n")
    (root / "bytes" / "b.md").write_text("1")
    (root / "folder" / ".gitignore").mkdir(parents=True)
    (root / "folder" / "a.txt").write_text("1")
    name = os.fsdecode(b"not-utf8-\xff.txt")
    (root / name).write_text("1")
    # A pattern that a backtracking matcher needs years for.
    (root / "bytes" / ("a" * 200)).write_text("1")
    (root / ".gitignore").write_text("*a" * 40 + "b\n")

    assert taken(root) == {
        *("pipe/a.txt", "link/a.txt", "folder/a.txt", "bytes/a.txt", f"bytes/{'a' * 200}", name)
    }
