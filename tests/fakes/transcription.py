"""A service with OpenAI's `POST /audio/transcriptions` that keeps what it got; may misbehave."""

import io
import json
import threading
import wave
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Heard:
    """One request: its fields, the seconds of its sound, and how that is written."""

    fields: dict[str, str]
    seconds: float
    form: tuple[int, int, int]
    """channels, bytes of a sample, samples a second"""
    authorization: str | None
    size: int


@dataclass
class Service:
    url: str = ""
    heard: list[Heard] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str], str]] = field(default_factory=list)
    """what to answer instead, first come first; then it behaves again"""
    knows_times: bool = True
    """whether its model does; one that does not refuses to be asked for them"""

    def answer(self, heard: Heard) -> tuple[int, dict[str, str], str]:
        self.heard.append(heard)
        if self.answers:
            return self.answers.pop(0)
        if not self.knows_times:
            if heard.fields["response_format"] not in ("json", "text"):
                return 400, {}, '{"error": "response_format \'verbose_json\' is not compatible"}'
            return 200, {}, json.dumps({"text": "All of it."})
        number = len(self.heard)
        segments: list[dict[str, Any]] = [
            {"start": 1.5, "end": 2.5, "text": f" Second of {number}."},
            {"start": 0.0, "end": 1.5, "text": f" First of {number}."},
        ]
        return 200, {}, json.dumps({"text": "whole", "segments": segments})


@contextmanager
def running(service: Service) -> Generator[Service]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path != "/v1/audio/transcriptions":
                status, headers, text = 404, {}, "no such path"
            else:
                heard = _read(self.headers["content-type"], body)
                heard.authorization = self.headers["authorization"]
                status, headers, text = service.answer(heard)
            if status == 0:  # hang up
                self.connection.close()
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()


def _read(content_type: str, body: bytes) -> Heard:
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    fields: dict[str, str] = {}
    sound = b""
    for part in BytesParser(policy=HTTP).parsebytes(head + body).iter_parts():
        name = part.get_param("name", header="content-disposition")
        if name == "file":
            assert part.get_content_type() == "audio/wav"
            payload = part.get_payload(decode=True)
            assert isinstance(payload, bytes)
            sound = payload
        else:
            fields[str(name)] = part.get_content().strip()
    with wave.open(io.BytesIO(sound)) as file:
        form = (file.getnchannels(), file.getsampwidth(), file.getframerate())
        seconds = file.getnframes() / file.getframerate()
    return Heard(fields, seconds, form, None, len(body))
