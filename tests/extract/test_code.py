"""Source code stays as it is."""

import pytest

from recollect.extract import detect, supported

SOURCE = '#!/usr/bin/env python\n# not a heading\n\ndef f(x):\n\treturn "<p>" + x  # ü\n'


def test_code_keeps_its_lines_and_is_called_by_its_name(read):
    extracted = read(SOURCE, "tools/walk.py")

    assert extracted.text == SOURCE.strip("\n")
    assert extracted.title == "tools/walk.py"
    assert extracted.kind == "text"
    assert extracted.markdown is False


@pytest.mark.parametrize(
    "name",
    [
        "Makefile", "shop/Dockerfile", "CMakeLists.txt", "requirements.txt", "robots.txt",
        "crontab", ".gitignore", ".env", "local.env", "app.properties",
    ],
)  # fmt: skip
def test_comments_of_files_that_no_ending_tells_are_no_headings(read, name):
    extracted = read("# who may\nx = 1\n", name)

    assert (extracted.markdown, extracted.title) == (False, name)


@pytest.mark.parametrize("name", [None, "run", "notes.txt"])
def test_a_script_is_told_by_its_first_line(read, name):
    assert read(SOURCE, name).markdown is False


def test_a_script_with_a_binary_behind_it_is_not_read():
    assert detect(b"#!/bin/sh\nexec tail\n" + bytes(500), name="install.run", mime=None) is None


def test_a_note_has_headings_and_a_log_has_none(read):
    assert read("# Shopping\n\n- milk\n", "shopping.txt").markdown is True
    assert read("# nginx\n127.0.0.1 GET /\n", "access.log").markdown is False


@pytest.mark.parametrize("name", ["a.rs", "a.tsx", "Main.java", "style.css", "ci.yml", "a.sql"])
def test_code_is_known_by_its_name(name):
    found = detect(b"x = 1\n", name=name, mime="application/octet-stream")

    assert found
    assert (found.extractor, found.kind) == ("code", "text")


def test_code_that_is_a_page_or_binary_is_what_its_bytes_say():
    page = detect(b"<!doctype html><p>x", name="a.js", mime=None)

    assert page
    assert page.extractor == "html"
    assert detect(b"\x7fELF\x02\x01\x01\x00", name="a.c", mime=None) is None


def test_the_list_of_what_can_be_read_names_code():
    assert ".py" in supported()
