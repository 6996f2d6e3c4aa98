"""Test the HTML report of a check in headless Chromium: search, filters, links, keyboard, print,
contrast and other rules of accessibility (axe-core), and that it asks the network for nothing.

`scripts/install_browser.sh` installs what these tests need. Without it they are skipped, unless
REGRAFT_TEST_BROWSER is 1.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import regraft

webdriver = pytest.importorskip("selenium.webdriver")
WebDriverWait = pytest.importorskip("selenium.webdriver.support.wait").WebDriverWait

ROOT = Path(__file__).parents[2]
AXE = ROOT / ".cache" / "browser" / "node_modules" / "axe-core" / "axe.min.js"
PROGRAMS = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1200,900",
)
IS_READY = all(PROGRAMS.values()) and AXE.exists()
pytestmark = pytest.mark.skipif(
    not IS_READY and os.environ.get("REGRAFT_TEST_BROWSER") != "1",
    reason="no browser: run scripts/install_browser.sh",
)


def start_browser(profile: Path, preferences: dict[str, Any]) -> Any:
    """Return a browser that records its requests."""
    assert IS_READY, f"{PROGRAMS}, {AXE}: run scripts/install_browser.sh"
    options = webdriver.ChromeOptions()
    options.binary_location = PROGRAMS["chromium"]
    for switch in (*SWITCHES, f"--user-data-dir={profile}"):
        options.add_argument(switch)
    options.add_experimental_option("prefs", preferences)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    service = webdriver.ChromeService(executable_path=PROGRAMS["chromedriver"])
    return webdriver.Chrome(options=options, service=service)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser for all tests."""
    chrome = start_browser(tmp_path_factory.mktemp("profile"), {})
    yield chrome
    chrome.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the report on the example repository and some corpus files, with near
    misses."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    corpus = sorted((ROOT / "tests" / "corpus").glob("a*.py"))
    own = ROOT / "examples" / "own-repository"
    arguments = ("--no-lock", "--explain", "--output-format", "html")
    path.write_text(regraft("check", *arguments, own, *corpus).stdout)
    assert path.stat().st_size < 2_000_000
    return path.as_uri()


def shown(driver: Any) -> list[Any]:
    """Return the cards of findings that are visible."""
    cards = driver.find_elements("css selector", "article[data-rule]")
    return [card for card in cards if card.is_displayed()]


def states_of(driver: Any) -> set[str]:
    """Return the states of the findings that are visible."""
    return {card.get_attribute("data-status") for card in shown(driver)}


def send(driver: Any, *keys: str) -> None:
    """Press keys where the focus is."""
    driver.switch_to.active_element.send_keys(*keys)


def test_search_and_filters(driver: Any, page: str) -> None:
    driver.get(page)
    every = len(shown(driver))
    assert every > 5
    driver.find_element("id", "query").send_keys("rotary layers.py")
    assert 0 < len(shown(driver)) < every
    assert driver.find_element("id", "shown").text == f"{len(shown(driver))} of {every} shown"
    assert "query=rotary+layers.py" in driver.current_url
    driver.refresh()
    assert driver.find_element("id", "query").get_attribute("value") == "rotary layers.py"
    assert 0 < len(shown(driver)) < every
    driver.find_element("css selector", "button[type=reset]").click()
    WebDriverWait(driver, 5).until(lambda _: len(shown(driver)) == every)
    assert states_of(driver) == {"fixable", "withheld"}
    for state in ("withheld", "fixable"):
        driver.find_element("css selector", f"#status option[value={state}]").click()
        WebDriverWait(driver, 5).until(lambda _, state=state: states_of(driver) == {state})


def test_a_link_to_a_finding_shows_it_whatever_the_filter(driver: Any, page: str) -> None:
    driver.get(page)
    last = shown(driver)[-1]
    anchor = last.get_attribute("id")
    driver.get("about:blank")
    driver.get(f"{page}?query=nothing+like+this#{anchor}")
    card = driver.find_element("id", anchor)
    assert card.is_displayed()
    top = driver.execute_script("return arguments[0].getBoundingClientRect().top", card)
    assert 0 <= top < 900


def test_the_keyboard_is_enough(driver: Any, page: str) -> None:
    driver.get(page)
    send(driver, "j")
    first, second = shown(driver)[:2]
    assert driver.switch_to.active_element == first
    send(driver, "j")
    assert driver.switch_to.active_element == second
    send(driver, "k")
    assert driver.switch_to.active_element == first
    send(driver, "/")
    send(driver, "jk/")
    assert driver.find_element("id", "query").get_attribute("value") == "jk/"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_rule_of_accessibility_is_broken(driver: Any, page: str, scheme: str) -> None:
    driver.get(page)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    driver.execute_script(AXE.read_text())
    result = driver.execute_async_script(
        "axe.run(document, {resultTypes: ['violations']}).then(arguments[arguments.length - 1])"
    )
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert len(result["passes"]) > 10
    assert [
        (violation["id"], violation["nodes"][0]["html"]) for violation in result["violations"]
    ] == []


def test_print_shows_all_findings_and_no_controls(driver: Any, page: str) -> None:
    driver.get(page)
    every = len(shown(driver))
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not driver.find_element("id", "filters").is_displayed()
    assert len(shown(driver)) == every
    document = driver.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert document["data"].startswith("JVBER")  # %PDF


def test_nothing_is_asked_of_the_network(driver: Any, page: str) -> None:
    driver.get_log("performance")  # drops what earlier tests logged
    driver.get(page)
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    requests = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    assert requests == [page]


def test_without_findings_there_is_nothing_to_filter(driver: Any, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("x = 1\n")
    report = tmp_path / "report.html"
    report.write_text(regraft("check", "--output-format", "html", tmp_path / "net.py").stdout)
    driver.get(report.as_uri())
    assert "No findings." in driver.find_element("tag name", "main").text
    assert not driver.find_element("id", "filters").is_displayed()


def test_without_scripts_all_findings_are_there_and_no_filter(page: str, tmp_path: Path) -> None:
    chrome = start_browser(tmp_path, {"profile.managed_default_content_settings.javascript": 2})
    try:
        chrome.get(page)
        assert len(shown(chrome)) > 5
        assert not chrome.find_element("id", "filters").is_displayed()
    finally:
        chrome.quit()
