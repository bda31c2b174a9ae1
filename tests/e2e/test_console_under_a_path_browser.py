"""The console in a browser, where a proxy forwards only what is below a path."""

from recollect.app import App
from recollect.model import Tenant
from recollect.worker.processing import drain
from tests.conftest import eventually
from tests.console.test_console_under_a_path import UNDER, site_under_a_path
from tests.e2e.browser import Tab
from tests.e2e.test_console_browser import checked, choose
from tests.e2e.test_console_keys_browser import CONTROL, chord


def test_what_scripts_ask_for_is_below_the_path_too(tab: Tab, app: App, tenant: Tenant, key: str):
    with site_under_a_path(app, strips=True) as site:
        tab.open(f"{site}/console/add")
        tab.type("#key", key)
        tab.click("form button")
        assert tab.js("location.pathname") == f"{UNDER}/console/add"
        choose(tab, "new File(['The heron wades.'], 'heron.txt')")
        [row] = checked(tab, 1)
        tab.click(".add .actions button")
        tab.until(f"location.pathname === '{UNDER}/console/progress'")
        waiting = tab.text()
        drain(app)
        eventually(lambda: "All finished." in tab.text())
        chord(tab, "k", 75, CONTROL)
        tab.send("Input.insertText", text="heron")
        tab.js("window.left = true")
        tab.press("Enter", 13)
        tab.arrived()

        assert tab.js("location.pathname + location.search") == f"{UNDER}/console/search?q=heron"
        assert "heron.txt" in tab.text()
        assert "heron.txt" in row
        assert "0 of 1 document finished." in waiting
        assert tab.complaints == []
        tab.open("about:blank")
