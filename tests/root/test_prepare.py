"""The first start on a database: its key is made once, so it is kept or not made."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr

from recollect.app import prepare, secret_keys
from recollect.config import Config
from recollect.errors import SetupError, Unavailable
from tests.conftest import capture_logs


def test_the_first_key_has_a_folder_to_be_kept_in(new_database: Callable[[], str], tmp_path: Path):
    """A database of one's own makes none, as the embedded one does."""
    config = Config(data_dir=tmp_path / "not" / "there")
    made = prepare(config, new_database())
    assert made is not None
    kept = config.data_dir / "api-key"
    assert kept.read_text() == f"{made}\n"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_without_such_a_folder_no_key_is_made(new_database: Callable[[], str], tmp_path: Path):
    (tmp_path / "file").touch()
    url = new_database()
    with pytest.raises(SetupError, match=r"cannot be created .*RECOLLECT_DATA_DIR"):
        prepare(Config(data_dir=tmp_path / "file" / "below"), url)
    with psycopg.connect(url) as session:
        assert session.execute("select count(*) from keys").fetchone() == (0,)


def test_a_first_key_that_cannot_be_kept_is_not_made(
    new_database: Callable[[], str], tmp_path: Path
):
    """Nor is one where the service is killed before it is kept: the next start makes another."""
    (tmp_path / "api-key").mkdir()
    url = new_database()
    with pytest.raises(SetupError, match=r"cannot be kept in .*api-key \(Is a directory\)"):
        prepare(Config(data_dir=tmp_path), url)
    with psycopg.connect(url) as session:
        assert session.execute("select count(*) from keys").fetchone() == (0,)


def test_the_first_key_of_another_database_is_put_aside(
    new_database: Callable[[], str], tmp_path: Path
):
    """It was shown once. The new one may come to nothing: the service may be killed, and again."""
    kept, aside = tmp_path / "api-key", tmp_path / "api-key.replaced"
    kept.write_text("of the embedded database\n")
    kept.chmod(0o644)
    made = [prepare(Config(data_dir=tmp_path), new_database()) for _ in range(2)]

    assert kept.read_text() == f"{made[1]}\n"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert aside.read_text() == "of the embedded database\n"


def test_what_an_earlier_key_of_the_settings_still_does_is_told(
    new_database: Callable[[], str], tmp_path: Path
):
    url = new_database()

    def told(secret: str) -> list[str]:
        with capture_logs() as logs:
            prepare(Config(data_dir=tmp_path, api_key=SecretStr(secret)), url)
        return [line["event"] for line in logs if line["log_level"] == "warning"]

    first, second = "a-key-of-many-words", "another-of-many-words"
    assert told(first) == told(first) == []
    assert told(second) == ["earlier key still opens"]
    with psycopg.connect(url) as session:
        session.execute("update keys set revoked_at = now()")
    assert told(second) == ["key does not open"]


def test_no_other_secret_key_is_made_while_the_folder_of_the_first_is_away(tmp_path: Path):
    """What it sealed, nobody could open once the folder is there again."""
    folder, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    config = Config(data_dir=folder)
    [key] = secret_keys(config)
    folder.rename(elsewhere)

    with pytest.raises(Unavailable, match="is away"):
        secret_keys(config)

    assert not folder.exists()
    elsewhere.rename(folder)
    assert secret_keys(config) == (key,)


@pytest.mark.parametrize(("command", "code"), [("doctor", 1), ("api", 2), ("work", 2)])
def test_a_start_without_a_folder_for_temporary_files_ends_and_says_what_to_mount(
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    code: int,
):
    """A read-only root with nothing at /tmp: `doctor` ended with a traceback, and `serve` started
    its processes again for ever."""
    given = {"DATABASE_URL": database_url, "DATA_DIR": str(tmp_path), "EMBEDDER": "none"}
    keys = {"API_KEY": "a-key-of-this-test", "SECRET_KEY": os.urandom(16).hex()}
    for name, value in (given | keys).items():
        monkeypatch.setenv(f"RECOLLECT_{name}", value)
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", sys.executable, "-m", "recollect", command],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert "no folder for temporary files can be written to" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == code
