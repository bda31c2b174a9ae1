"""Calendars and address books: lines in one piece, and in words that a person reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.extract.web import ical
from recollect.model import Blob

CALENDAR = """BEGIN:VCALENDAR
VERSION:2.0
X-WR-CALNAME:Orchard\\, south
BEGIN:VTIMEZONE
TZID:Europe/Berlin
BEGIN:STANDARD
DTSTART:19701025T030000
END:STANDARD
END:VTIMEZONE
BEGIN:VEVENT
UID:1@x.test
DTSTART;TZID=Europe/Berlin:20240205T090000
DTEND;TZID=Europe/Berlin:20240205T103000
SUMMARY:Pruning\\, par
 t one
DESCRIPTION:Bring ladders\\; and\\nsa
\tws.
ORGANIZER;CN="Ann, B: C":mailto:ann@x.test
ATTENDEE;CN=Bob:MAILTO:bob@x.test
ATTENDEE:mailto:cy@x.test
RRULE:FREQ=WEEKLY;UNTIL=20240301T080000Z
BEGIN:VALARM
DESCRIPTION:Reminder
END:VALARM
LOCATION:Field 5
END:VEVENT
BEGIN:VEVENT
DTSTART;VALUE=DATE:20240301
DTEND;VALUE=DATE:20240302
SUMMARY:Harvest day
END:VEVENT
BEGIN:VEVENT
DTSTART;VALUE=DATE:20240301
DTEND;VALUE=DATE:20240305
SUMMARY:Fair
END:VEVENT
BEGIN:VTODO
DUE:20240301T120000Z
SUMMARY:Pay the crew
END:VTODO
END:VCALENDAR
""".replace("\n", "\r\n")
EVENTS = """## Pruning, part one

Start: 2024-02-05 09:00 Europe/Berlin
End: 2024-02-05 10:30 Europe/Berlin
Description: Bring ladders; and
saws.
Organizer: Ann, B: C <ann@x.test>
Attendee: Bob <bob@x.test>; cy@x.test
Repeats: FREQ=WEEKLY, UNTIL=2024-03-01 08:00 UTC
Location: Field 5

## Harvest day

Start: 2024-03-01

## Fair

Start: 2024-03-01
End: 2024-03-04

## Pay the crew

Due: 2024-03-01 12:00 UTC"""


def card(lines: str) -> str:
    return f"BEGIN:VCARD\nVERSION:3.0\n{lines}\nEND:VCARD\n"


@pytest.mark.parametrize("name", ["a.ics", None])
def test_events_come_in_their_order_with_whole_lines_and_plain_dates(read, name):
    extracted = read(CALENDAR, name)

    assert extracted.text == EVENTS
    assert extracted.title == "Orchard, south"
    assert extracted.kind == "text"
    assert list(extracted.warnings) == []


def test_a_line_may_be_folded_within_a_letter(read):
    folded = "SUMMARY:Äpfel".encode().replace(b"\x84", b"\r\n \x84")
    data = b"BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\n" + folded + b"\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"

    assert read(data, "a.ics").text == "## Äpfel"


def test_utf_16_is_unfolded_as_well(read):
    assert read(CALENDAR.encode("utf-16"), "a.ics").text == EVENTS


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (
            "N:Ode;Ann;;Dr.;\nFN:Ann Ode\nitem1.TEL;type=CELL;type=pref:1\nTEL;TYPE=WORK,FAX:2\n"
            "ADR;TYPE=HOME:;;Market 1;Ode\\;by;;10;\nBDAY:19850412",
            "## Ann Ode\n\nName: Dr. Ann Ode\nPhone (cell): 1\nPhone (work, fax): 2\n"
            "Address (home): Market 1, Ode;by, 10\nBirthday: 1985-04-12",
        ),
        (
            "N;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:=C3=84hl;Bo;;;\nTEL;CELL;VOICE:3\n"
            "NOTE;ENCODING=QUOTED-PRINTABLE:one=0D=0At=\nwo\nPHOTO;ENCODING=BASE64;JPEG:AA\n BB\n",
            "## Bo Ähl\n\nPhone (cell): 3\nNote: one\ntwo",
        ),
        ("FN:Cy\nNOTE:not folded\nas it has to be", "## Cy\n\nNote: not folded\nas it has to be"),
        ("FN:Di\nLOGO:data:image/png;base64,AA\nKEY;ENCODING=b:AA", "## Di"),
        ("TEL:4", "## Contact\n\nPhone: 4"),
    ],
)
def test_a_contact_reads_as_a_person_would_note_it(read, lines, text):
    assert read(card(lines), "a.vcf").text == text


def test_contacts_stand_apart_and_a_missing_end_costs_nothing(read):
    extracted = read(
        f"{card('FN:Ann')}BEGIN:VCARD\nFN:Bo\n{card('FN:Cy')}BEGIN:VCARD\nFN:D", "a.vcf"
    )

    assert extracted.text == "## Ann\n\n## Bo\n\n## Cy\n\n## D"
    assert extracted.title is None


def test_the_only_contact_is_the_title(read):
    assert read(card("FN:Ann"), "a.vcf").title == "Ann"


def test_what_is_no_calendar_is_read_as_text(read):
    extracted = read("Monday: pears", "a.ics")

    assert extracted.text == "Monday: pears"
    assert list(extracted.warnings) == [
        "It holds no events or contacts; it was read as plain text."
    ]


@given(st.text() | st.lists(st.sampled_from(CALENDAR.split("\r\n"))).map("\n".join))
def test_any_text_is_read(text):
    ical.extract(Blob(text.encode("utf-8", "replace"), name="a.ics"))
