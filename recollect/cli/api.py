"""`api`: one process that answers HTTP."""

import asyncio
import socket
from typing import Annotated

import typer
import uvicorn
from fastapi import FastAPI

from recollect import console
from recollect.api import create_app
from recollect.app import App
from recollect.cli._config import load
from recollect.cli._log import log_of_process
from recollect.cli._opened import opened
from recollect.cli._process import Host, Parent, Port, Supervised, end_within, listen
from recollect.cli._wire import BoundedHttp
from recollect.orgs.orgs import Limit

Listening = Annotated[int | None, typer.Option("--listening", hidden=True)]


def register(app: typer.Typer) -> None:
    app.command()(api)


TICKS = 5
"""of 0.1 s: uvicorn looks ten times a second whether it should end, a quarter of the processor
time of an idle service"""
GRACE = 6
"""Seconds in which requests may end at a stop; a container is killed after ten."""
LAST = 1
"""Seconds for what they leave behind."""


class _Server(uvicorn.Server):
    async def main_loop(self) -> None:
        count = 0
        while not await self.on_tick(count):
            count = (count + TICKS) % 1000  # it does something at each multiple of ten
            await asyncio.sleep(TICKS / 10)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Requests are told that this process ends; a thread of theirs may wait for a model.
        end_within(GRACE + LAST, 0)
        await super().shutdown(sockets)


def website(app: App) -> FastAPI:
    """The API, and the console before it."""
    limit = app.config.rate_limit
    web = create_app(app, limit=Limit(limit) if limit else None)
    console.add_to(web)
    return web


def api(
    host: Host = None,
    port: Port = None,
    supervised: Supervised = False,
    listening: Listening = None,
) -> None:
    """Run one API process; as many as wanted may share a database.

    Example: RECOLLECT_DATABASE_URL=postgresql://… recollect api --port 6767
    """
    parent = Parent() if supervised else None
    config = load(host=host, port=port)
    log_of_process(config, "api")
    own = listen(config) if listening is None else None
    with opened(config, supervised=supervised) as app:
        web = website(app)
        server = _Server(
            uvicorn.Config(
                web,
                fd=listening if own is None else own.fileno(),
                http=BoundedHttp,
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE,
            )
        )
        web.state.events.is_over = lambda: server.should_exit
        if parent:
            parent.at_end(lambda: setattr(server, "should_exit", True))
        server.run()
