"""The examples for proxies are what those programs read."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house import facts

PAGE = facts.PROJECT / "docs" / "operations.md"


def example(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.skipif(shutil.which("caddy") is None, reason="Caddy is not here")
def test_caddy_reads_its_example(tmp_path: Path) -> None:
    file = tmp_path / "Caddyfile"
    file.write_text(example("caddyfile"))
    command = ["caddy", "adapt", "--config", str(file), "--adapter", "caddyfile"]
    ended = subprocess.run(command, capture_output=True, text=True)

    assert ended.returncode == 0, ended.stderr
    assert '"dial":"127.0.0.1:6767"' in ended.stdout


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not here")
def test_nginx_reads_its_example(tmp_path: Path) -> None:
    plain = re.sub(r"\n *ssl_certificate.*", "", example("nginx")).replace("443 ssl", "8443")
    file = tmp_path / "nginx.conf"
    file.write_text(
        f"pid {tmp_path}/pid; error_log stderr; events {{}}\nhttp {{ access_log off;\n{plain}}}\n"
    )
    ended = subprocess.run(["nginx", "-t", "-c", str(file)], capture_output=True, text=True)

    assert ended.returncode == 0, ended.stderr
