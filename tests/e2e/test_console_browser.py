"""The console as a person uses it, in a headless Chromium."""

from pathlib import Path

import pytest

from recollect import documents
from recollect.app import App
from recollect.events import endpoints, outbox
from recollect.model import Plan, Tenant
from recollect.orgs import audit, orgs
from recollect.worker.processing import drain
from tests.conftest import eventually, plain_client
from tests.console.test_console import FORM, PAYLOADS, add, all_of, get, hostile
from tests.e2e.browser import NEEDS_CHROMIUM, SOME, WIDE_TABLE, Tab, misfits, nameless
from tests.e2e.conftest import cookie

pytestmark = NEEDS_CHROMIUM


def test_signing_in_by_hand(tab: Tab, site: str, key: str):
    tab.open(f"{site}/console/documents?status=failed")
    tab.type("#key", key[:-1])
    tab.js("window.left = true")
    tab.press("Enter", 13)
    tab.arrived()
    refused = tab.text()
    tab.type("#key", key)
    tab.click("form button")

    assert "This key is not valid" in refused
    assert tab.js("location.pathname + location.search") == "/console/documents?status=failed"
    assert tab.js("document.cookie") == ""
    tab.click(".who button")
    tab.open(f"{site}/console")
    assert tab.js("location.pathname") == "/console/login"


def test_a_link_from_another_site_finds_the_session(room: Tab, site: str):
    elsewhere = site.replace("127.0.0.1", "localhost")
    room.open(f"{elsewhere}/docs-of-another-site")
    room.js(
        f"const a = document.createElement('a'); a.href = '{site}/console/add';"
        " window.left = true; document.body.append(a); a.click()"
    )
    room.arrived()

    room.until("location.pathname === '/console/add'")


def test_what_is_added_is_watched_until_it_is_searchable(
    room: Tab, app: App, tenant: Tenant, site: str
):
    room.click("nav a[href='/console/add']")
    room.type("#content", "The heron <b>wades</b> at dusk.")
    room.type("#tag", "birds")
    room.js("document.querySelector('[data-more]').click()")
    room.type("tr:last-child input[name=key]", "topic")
    room.type("tr:last-child input[name=value]", "herons")
    room.click(".add .actions button")
    before = room.text()
    room.js("window.same = true")
    drain(app)
    eventually(lambda: "All finished." in room.text())

    assert "0 of 1 document finished." in before
    assert "queued" in before
    assert room.js("window.same")
    assert room.text("#say") == "All finished"
    assert "1 passage, searchable" in room.text()
    room.click("main .row a")
    assert "The heron <b>wades</b> at dusk." in room.text(".drawn")
    assert "topic" in room.text(".facts")
    assert room.complaints == []


def test_a_form_goes_to_the_organisation_of_its_page_or_nowhere(
    room: Tab, app: App, tenant: Tenant, site: str, key: str
):
    """Another tab may be signed in to another organisation meanwhile."""
    with app.db.begin() as tx:
        other = orgs.create(tx, f"org-{orgs.random_id()}", Plan.ENTERPRISE)
        _, secret = orgs.create_key(tx, other.id)

    def sign_in(with_key: str) -> None:
        with plain_client(site, FORM) as http:
            answer = http.post("/console/login", data={"key": with_key})
        room.send("Network.setCookie", url=f"{site}/console", **cookie(answer))

    room.click("nav a[href='/console/add']")
    room.type("#content", "The heron wades at dusk.")
    sign_in(secret)
    room.click(".add .actions button")
    told = room.text()
    nowhere = [*all_of(app, tenant), *all_of(app, Tenant(other.id))]
    sign_in(key)
    room.js("window.left = true")
    room.send("Page.reload")
    room.arrived()

    assert "another organisation" in told
    assert nowhere == []
    [kept] = all_of(app, tenant)
    assert kept.id in room.js("location.search")


def test_a_form_is_sent_once_however_often_it_is_clicked(room: Tab, site: str):
    clicked = """
      (() => {
        let sent = 0;
        addEventListener("submit", (event) => {
          if (!event.defaultPrevented) sent += 1;
          event.preventDefault();
        });
        const button = document.querySelector("main form button:not([type=button])");
        button.click();
        button.click();
        return sent;
      })()
    """
    for path, sent in (("add", 1), ("keys", 1), ("webhooks", 1), ("search", 2)):
        room.open(f"{site}/console/{path}")
        room.js(
            "for (const field of document.querySelectorAll('[required]')) field.value = 'https://a.example'"
        )

        assert room.js(clicked) == sent, path


CHOSEN = "[...document.querySelectorAll('[data-chosen] li')].map((row) => row.innerText)"


def choose(room: Tab, *files: str) -> None:
    """Put files, as JavaScript makes them, into the field."""
    room.js(f"""
      const files = new DataTransfer();
      for (const file of [{", ".join(files)}]) files.items.add(file);
      const input = document.querySelector("#file");
      input.files = files.files;
      input.dispatchEvent(new Event("change", {{bubbles: true}}));
    """)


def checked(room: Tab, number: int) -> list[str]:
    """The rows of the files, once all were looked at."""
    eventually(lambda: f"{number} files chosen" in room.text("#say"))
    return room.js(CHOSEN)


def test_a_folder_is_dropped_looked_at_and_added(
    room: Tab, app: App, tenant: Tenant, tmp_path: Path
):
    for path, data in (
        ("birds/egret <i>.md", b"# Egret\n\nwhite"),
        ("birds/far/away/crane.txt", b"crane"),
        ("birds/.git/config", b"hidden"),
        ("birds/wing.bin", bytes(range(256))),
    ):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    for folder in (tmp_path, *tmp_path.rglob("*")):
        folder.chmod(0o755)
    room.click("nav a[href='/console/add']")
    room.js("document.querySelector('[data-drop]').scrollIntoView({block: 'center'})")
    place = room.js("document.querySelector('[data-drop]').getBoundingClientRect().toJSON()")
    data = {"items": [], "files": [str(tmp_path / "birds")], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        at = {"x": place["x"] + 5, "y": place["y"] + 5}
        room.send("Input.dispatchDragEvent", type=kind, data=data, **at)
    rows = checked(room, 3)
    room.type("#tag", "birds")
    room.js("document.querySelector('.add .actions button').click()")
    room.until(
        "!document.querySelector('form[aria-busy]') && /2 added/.test(document.body.innerText)"
    )
    left = room.js(CHOSEN)
    room.click("[data-sent] a")
    drain(app)
    eventually(lambda: "All finished." in room.text())

    assert {row.split(" · ")[0] for row in rows} == {
        "birds/egret <i>.md", "birds/far/away/crane.txt", "birds/wing.bin",
    }  # fmt: skip
    (unfit,) = (row for row in rows if "will not be sent" in row)
    assert "wing.bin" in unfit
    assert "this kind is not supported" in unfit
    assert sum("added" in row for row in left) == 2
    assert {(d.title, d.filepath) for d in all_of(app, tenant)} == {
        ("Egret", "birds/egret <i>.md"), ("crane.txt", "birds/far/away/crane.txt"),
    }  # fmt: skip
    assert room.complaints == []


def test_nothing_chosen_is_lost_by_a_wrong_tag(room: Tab, app: App, tenant: Tenant):
    room.click("nav a[href='/console/add']")
    choose(
        room,
        'new File(["a heron"], "heron.txt")',
        'new File([new Uint8Array(50 * 1024 * 1024 + 1)], "big.txt")',
    )
    rows = checked(room, 2)
    room.type("#tag", "no spaces")
    room.js("document.querySelector('.add .actions button').click()")
    eventually(lambda: "1 to 100 characters" in room.text("#tag-fault"))
    kept = room.js(CHOSEN)
    focused = room.js("document.activeElement.id")
    nothing = all_of(app, tenant)
    room.js("document.querySelector('#tag').value = 'birds'")
    room.js("[...document.querySelectorAll('[data-chosen] button')].at(-1).click()")
    room.click(".add .actions button")

    assert "It is larger than 50 MB." in rows[1]
    assert (kept, focused, nothing) == (rows, "tag", [])
    room.until("location.pathname === '/console/progress'")
    (added,) = all_of(app, tenant)
    assert (added.title, added.container_tags) == ("heron.txt", ["birds"])
    assert room.complaints == []


def test_a_hit_opens_the_document_at_its_place(room: Tab, app: App, tenant: Tenant):
    filler = "\n\n".join(f"# Part {n}\n\n{f'Filling number {n} here. ' * 45}" for n in range(130))
    add(app, tenant, filler + "\n\n# Last\n\nTwo egrets were wading at dusk.")
    drain(app)
    room.click("nav a[href='/console/search']")
    room.type("#q", "wading egret")
    room.click(".search button")
    room.click(".hits h3 a")
    place = room.js("document.querySelector('.chunk.wanted').getBoundingClientRect().toJSON()")
    height = room.js("innerHeight")

    assert 0 <= place["top"] < height
    assert "egrets" in room.js(
        "[...document.querySelectorAll('.wanted mark')].map(m => m.innerText)"
    )
    assert room.js("document.querySelector('.chunk.wanted').id === location.hash.slice(1)")


def test_a_search_says_why_a_passage_stands_where_it_does(
    room: Tab, app: App, tenant: Tenant, site: str
):
    for text in ("A heron wades.", "Egrets nest.", "Nothing of birds.", "A heron, an egret."):
        add(app, tenant, text)
    drain(app)
    room.open(f"{site}/console/search?q=egret+heron")
    first = "document.querySelector('.hits .passage')"
    assert room.js(f"{first}.querySelector('.why dl').checkVisibility()") is False
    room.js("document.querySelector('.why summary').click()")

    assert room.js(f"{first}.querySelector('.why dl').checkVisibility()") is True
    parts = room.js(f"[...{first}.querySelectorAll('.why dl > div')].map(d => d.innerText)")
    names = [part.split()[0] for part in parts]
    assert names == ["Words", "Meaning", "Window", "Pairs"]
    sums = room.js(
        "[...document.querySelectorAll('.passage .why dl')].map(dl =>"
        " [...dl.querySelectorAll('dd')].reduce((sum, dd) => sum + parseFloat(dd.textContent), 0))"
    )
    assert len(sums) > 2
    assert sums == sorted(sums, reverse=True)
    assert "lifted by" in room.js(f"{first}.querySelector('.why p').innerText").lower()


def test_code_is_copied(room: Tab, app: App, tenant: Tenant, site: str):
    add(app, tenant, "a heron")
    drain(app)
    room.send(
        "Browser.grantPermissions",
        origin=site,
        permissions=["clipboardReadWrite", "clipboardSanitizedWrite"],
    )
    room.open(f"{site}/console/search?q=heron+%26+%27egret%27")
    room.js("document.querySelector('[data-copy]').click()")
    eventually(lambda: room.text("#say") == "Copied")

    shown = room.js("document.querySelector('.code pre').textContent")
    assert "YOUR_KEY" in shown
    assert room.js("navigator.clipboard.readText()") == shown


def test_what_is_ticked_stays_ticked_while_the_table_is_refreshed(
    room: Tab, app: App, tenant: Tenant
):
    for number in range(3):
        add(app, tenant, f"text {number}", title=f"Title {number}")
    room.click("nav a[href='/console/documents']")
    room.js("document.querySelectorAll('input[name=id]')[1].click()")
    room.js("document.querySelectorAll('input[name=id]')[1].focus()")
    ticked = room.js("document.activeElement.value")
    drain(app)
    # One that is past the queue may still be worked on.
    eventually(lambda: room.text("#say") == "0 documents on this page unfinished")

    assert "queued" not in room.text("tbody")
    assert room.js("[...document.querySelectorAll('tbody input:checked')].map(i => i.value)") == [
        ticked
    ]
    assert room.js("document.activeElement.value") == ticked


@pytest.mark.parametrize("of", ["input[name=id]", "tbody a"])
def test_the_focus_stays_with_its_document_when_others_appear_above_it(
    room: Tab, app: App, tenant: Tenant, of: str
):
    add(app, tenant, "the first", title="First")
    drain(app)
    room.click("nav a[href='/console/documents']")
    eventually(lambda: room.js("document.querySelector('[data-live]').heard === true"))
    room.js(f"document.querySelector({of!r}).focus()")
    where = "[document.activeElement.value, document.activeElement.href]"
    before = room.js(where)
    add(app, tenant, "the second", title="Second")
    eventually(lambda: room.js("document.querySelectorAll('input[name=id]').length") == 2)

    assert room.js(where) == before


@pytest.mark.parametrize("of", ["input[name=id]", "tbody a"])
def test_the_focus_passes_to_no_other_document_when_its_own_goes(
    room: Tab, app: App, tenant: Tenant, of: str
):
    _, gone = (add(app, tenant, f"the {name}", title=name).id for name in ("kept", "gone"))
    drain(app)
    room.click("nav a[href='/console/documents']")
    eventually(lambda: room.js("document.querySelector('[data-live]').heard === true"))
    room.js(f"document.querySelector({of!r}).focus()")
    where = "document.activeElement.closest('tr')?.textContent ?? ''"
    assert "gone" in room.js(where)
    with app.db.begin() as tx:
        documents.delete(tx, tenant, [gone])
    eventually(lambda: room.js("document.querySelectorAll('input[name=id]').length") == 1)

    assert "kept" not in room.js(where)


@pytest.mark.parametrize("of", [".deliveries summary", ".deliveries button"])
def test_the_focus_stays_with_its_delivery_when_others_appear_above_it(
    room: Tab, app: App, tenant: Tenant, of: str
):
    """Else it is another one that Space sends again."""
    url = "http://127.0.0.1:9/hook"
    target = endpoints.create(app, tenant, url=url, events=["document.done"])[0]
    with app.db.begin() as tx:
        first = outbox.try_out(tx, tenant, target.id).id
    room.click("nav a[href='/console/webhooks']")
    room.click(f"main a[href='/console/webhooks/{target.id}']")
    eventually(lambda: room.js("document.querySelector('[data-live]').heard === true"))
    room.js(f"document.querySelector({of!r}).focus()")
    where = "document.activeElement.closest('tr').querySelector('details').id"
    assert room.js(where) == f"d-{first}"
    with app.db.begin() as tx:
        outbox.try_out(tx, tenant, target.id)
    eventually(lambda: room.js("document.querySelectorAll('.deliveries tbody tr').length") == 2)

    assert room.js(where) == f"d-{first}"


def test_shift_ticks_all_that_stand_between(room: Tab, app: App, tenant: Tenant):
    for number in range(5):
        add(app, tenant, f"text {number}")
    room.click("nav a[href='/console/documents']")
    click = "new MouseEvent('click', {bubbles: true, cancelable: true, shiftKey: %s})"
    for place, shift in ((1, "false"), (3, "true")):
        box = f"document.querySelectorAll('input[name=id]')[{place}]"
        room.js(f"{box}.dispatchEvent({click % shift}); null")
        # As where the list is brought up to date between two clicks.
        room.js(f"{box}.closest('tr').replaceWith({box}.closest('tr').cloneNode(true)); null")

    ticked = room.js("[...document.querySelectorAll('input[name=id]')].map((box) => box.checked)")
    assert ticked == [False, True, True, True, False]


def test_selecting_all_and_deleting(room: Tab, app: App, tenant: Tenant):
    for number in range(3):
        add(app, tenant, f"text {number}")
    drain(app)
    room.click("nav a[href='/console/documents']")
    room.js("document.querySelector('#all').click()")
    room.click("button[value=delete]")
    asked = room.text("h1")
    still = len(all_of(app, tenant))
    room.click("button[value=delete]")

    assert asked == "Delete 3 documents?"
    assert still == 3
    assert "3 documents deleted for good." in room.text(".notice")
    assert all_of(app, tenant) == []


def test_an_ended_session_is_told_and_not_asked_for_again(room: Tab, app: App, tenant: Tenant):
    add(app, tenant, "waits")
    room.click("nav a[href='/console/documents']")
    room.send("Network.clearBrowserCookies")
    eventually(lambda: "session has ended" in room.text("#say"))

    assert "queued" in room.text("tbody")


def test_what_was_typed_outlives_the_session(
    room: Tab, app: App, tenant: Tenant, site: str, key: str
):
    """Back leads to the sign-in, since no page is kept; the page that refuses says what to do."""
    room.click("nav a[href='/console/add']")
    room.type("#content", "The heron wades at dusk.")
    room.send("Network.clearBrowserCookies")
    room.click(".add .actions button")
    told = room.text()
    stored = all_of(app, tenant)
    with plain_client(site, FORM) as http:
        answer = http.post("/console/login", data={"key": key})
    room.send("Network.setCookie", url=f"{site}/console", **cookie(answer))
    room.js("window.left = true")
    room.send("Page.reload")
    room.arrived()

    assert "load this page again" in told
    assert room.js("location.pathname") == "/console/progress"
    assert stored == []
    [kept] = all_of(app, tenant)
    drain(app)
    assert get(app, tenant, kept.id).text == "The heron wades at dusk."


def test_what_is_written_from_the_right_is_read_from_the_right(
    room: Tab, app: App, tenant: Tenant, site: str
):
    document = add(app, tenant, "אנפה עומדת במים.\n\nA heron stands in water.")
    drain(app)
    ends = """
      [...document.querySelectorAll("SELECTOR")].map((part) => {
        const [range, text] = [document.createRange(), part.firstChild];
        const left = (at) => {
          range.setStart(text, at);
          range.setEnd(text, at + 1);
          return range.getBoundingClientRect().left;
        };
        return left(0) < left(text.length - 1) ? "left to right" : "right to left";
      })
    """
    room.open(f"{site}/console/documents/{document.id}")
    drawn = room.js(ends.replace("SELECTOR", ".drawn p"))

    assert drawn == ["right to left", "left to right"]


@pytest.mark.parametrize("some", SOME)
def test_no_stored_script_ever_runs(room: Tab, app: App, tenant: Tenant, site: str, some: slice):
    made = hostile(app, tenant, PAYLOADS)
    places = ["", "/documents?size=100", "/search?q=needle&limit=100"]
    places += [f"/documents/{document.id}?q=needle" for document in made[some]]
    progress = "&".join(f"id={document.id}" for document in made)
    for place in [*places, f"/progress?{progress}"]:
        room.open(f"{site}/console{place}")
        room.js("""
          for (const node of document.querySelectorAll("main *")) {
            for (const name of ["mouseover", "focus", "toggle", "error", "load"]) {
              node.dispatchEvent(new Event(name, {bubbles: true}));
            }
          }
        """)

        assert room.js("typeof window.ran") == "undefined", place
        assert room.js("location.href") == f"{site}/console{place}"
    assert room.complaints == []


def test_pages_fit_a_telephone_and_can_be_read(room: Tab, site: str, furnished: list[str]):
    assert [wrong for path in furnished for wrong in misfits(room, site + path, 380)] == []


@pytest.mark.parametrize(
    ("path", "of"),
    [("keys", ".keys th code"), ("audit", ".audit th code"), ("search", "#q-hint code")],
)
def test_ids_and_words_of_ours_stand_in_one_line_on_a_telephone(
    room: Tab, site: str, app: App, tenant: Tenant, path: str, of: str
):
    with app.db.begin() as tx:
        audit.record(tx, "connection.authorized", org=tenant.id)
    room.send(
        "Emulation.setDeviceMetricsOverride",
        width=360,
        height=800,
        deviceScaleFactor=1,
        mobile=True,
    )
    room.open(f"{site}/console/{path}")
    lines = room.js(
        f"[...document.querySelectorAll({of!r})].map((word) => word.getClientRects().length)"
    )
    too_wide = room.js(WIDE_TABLE)
    room.send("Emulation.clearDeviceMetricsOverride")
    assert not too_wide
    assert lines
    assert set(lines) == {1}


def test_the_page_of_keys_fits_the_smallest_telephone(
    room: Tab, site: str, app: App, tenant: Tenant
):
    """As wide as a page that is shown four times as large, too."""
    with app.db.begin() as tx:
        orgs.create_key(tx, tenant.id, name="unbroken" * 10)
    assert misfits(room, f"{site}/console/keys", 320) == []


@pytest.mark.parametrize("path", ["search", "documents", "audit", "keys"])
def test_fields_grow_with_text_that_is_set_larger(room: Tab, site: str, path: str):
    room.open(f"{site}/console/{path}")
    room.js("document.documentElement.style.fontSize = '30px'")
    cut_off = """
        [...document.querySelectorAll("main select, main input:not([type=checkbox])")]
          .filter((field) => field.offsetHeight)
          .filter((field) =>
            field.offsetHeight < 1.5 * parseFloat(getComputedStyle(field).fontSize))
          .map((field) => field.name)
    """

    assert room.js(cut_off) == []


def test_a_mark_in_a_link_can_be_read(room: Tab, site: str, app: App, tenant: Tenant):
    add(app, tenant, "# A heron\n\nIt wades.")
    drain(app)
    room.open(f"{site}/console/search?q=heron")
    assert room.js("document.querySelectorAll('a mark').length") > 0
    assert misfits(room, f"{site}/console/search?q=heron", 320) == []


def test_everything_can_be_reached_by_keyboard_and_has_a_name(
    room: Tab, site: str, furnished: list[str]
):
    for path in furnished:
        room.open(site + path)
        room.js("document.body.tabIndex = -1; document.body.focus()")  # some focus their field
        room.press("Tab", 9)
        assert room.js("document.activeElement.className") == "skip", path
        assert room.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"

        assert nameless(room) == [], path
        assert room.js("document.querySelectorAll('h1').length") == 1, path
        assert room.js("[...document.querySelectorAll('table')].every(t => t.caption)"), path


def test_without_scripts_everything_still_works(room: Tab, site: str, app: App, tenant: Tenant):
    room.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        room.open(f"{site}/console/add")
        assert room.js("document.querySelector('[data-more]').hidden")
        room.type("#content", "The heron wades.")
        room.click(".add .actions button")
        assert "0 of 1 document finished." in room.text()
        drain(app)
        room.open(f"{site}/console/search")
        room.type("#q", "heron")
        room.click(".search button")
        room.click(".hits h3 a")
        assert room.text("mark") == "heron"
        room.click("button[value=delete]")
        room.click("button[value=delete]")
        assert "1 document deleted for good." in room.text()
    finally:
        room.send("Emulation.setScriptExecutionDisabled", value=False)

    assert all_of(app, tenant) == []
