"""Documents that are an address: what is fetched from there becomes their text."""

from recollect.app import App
from recollect.ingest import pipeline
from recollect.model import Content, OrgId
from tests.fakes.website import Website


def read(app: App, body: bytes, mime: str) -> str:
    with Website() as web:
        web.page("/", body, mime=mime)
        url = web.url("/")
        return pipeline.read(app, OrgId("org"), Content("text", b"", text=url, url=url)).text


def test_a_page_is_in_the_charset_that_its_server_names(app: App):
    body = "<!doctype html><title>x</title><p>Zażółć gęślą</p>".encode("cp1250")

    assert read(app, body, "text/html; charset=windows-1250") == "Zażółć gęślą"


def test_a_table_is_in_the_charset_that_its_server_names(app: App):
    body = "a,b\nZażółć,2\n"

    for data in (body.encode("iso-8859-2"), body.encode()):
        assert read(app, data, 'text/csv; charset="ISO-8859-2"') == "a: Zażółć; b: 2"


def test_a_text_is_what_it_looks_like_where_its_server_says_what_it_says_of_all(app: App):
    text = "Съешь же ещё этих мягких французских булок, да выпей чаю."

    assert read(app, text.encode("koi8-r"), "text/plain; charset=ISO-8859-1") == text


def test_a_text_is_in_the_charset_that_its_server_names_though_it_is_ascii(app: App):
    text = "日本語のテキスト"

    for charset in ("ISO-2022-JP", "utf-8"):
        assert read(app, text.encode(charset), f"text/plain; charset={charset}") == text
    assert read(app, text.encode(), "text/plain; charset=ISO-2022-JP") == text
