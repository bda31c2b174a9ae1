"""Documents that are an address: what is fetched from there becomes their text."""

from recollect.app import App
from recollect.ingest import pipeline
from recollect.model import Content, OrgId
from tests.fakes.website import Website


def test_a_page_is_in_the_charset_that_its_server_names(app: App):
    with Website() as web:
        body = "<!doctype html><title>x</title><p>Zażółć gęślą</p>".encode("cp1250")
        web.page("/", body, mime="text/html; charset=windows-1250")
        url = web.url("/")

        found = pipeline.read(app, OrgId("org"), Content("text", b"", text=url, url=url))

    assert found.text == "Zażółć gęślą"
