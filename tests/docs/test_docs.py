"""Everything that a user can set, call or connect has its place in the documentation."""

from importlib import import_module

import pytest
import typer

from bench.ground import PROJECT
from recollect import connectors
from recollect.cli import COMMANDS
from recollect.config import Config, ProviderSettings

DOCS = PROJECT / "docs"


@pytest.mark.parametrize("name", sorted(set(Config.model_fields) - {"providers"}))
def test_every_setting_is_described(name: str) -> None:
    assert f"`RECOLLECT_{name.upper()}`" in (DOCS / "settings.md").read_text()
    assert Config.model_fields[name].description


@pytest.mark.parametrize("provider", sorted(connectors.settings()))
def test_every_setting_of_a_provider_is_described(provider: str) -> None:
    text = (DOCS / "settings.md").read_text()
    kind = connectors.settings()[provider]
    for name, variable in kind.variables(provider).items():
        is_shared = name in ProviderSettings.model_fields
        assert (f"`_{name.upper()}`" if is_shared else f"`{variable}`") in text
        assert kind.model_fields[name].description
    assert f"`{provider.replace('-', '_').upper()}`" in text


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_is_described_and_shows_an_example(command: str) -> None:
    assert f"recollect {command}" in (DOCS / "cli.md").read_text()
    part = typer.Typer()
    import_module(f"recollect.cli.{COMMANDS[command]}").register(part)
    group = typer.main.get_group(part).commands[command]
    shown = [group, *getattr(group, "commands", {}).values()]
    assert any("Example:" in (one.help or "") for one in shown)


@pytest.mark.parametrize("provider", sorted(connectors.all()))
def test_every_provider_has_a_guide(provider: str) -> None:
    assert (DOCS / f"{provider}.md").exists()
    assert f"({provider}.md)" in (DOCS / "connections.md").read_text()
