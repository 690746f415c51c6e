"""The web page end to end, in headless Chromium: what people do, by mouse and by keyboard."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
pytest.importorskip("selenium", reason="selenium is not installed")

import browser
from browser import Page
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from patience_env.agents.policy import make_policy
from patience_env.game import get_game
from patience_env.serve.sessions import Play

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (browser.CHROMIUM and browser.DRIVER), reason="chromium and chromedriver are not installed (apt-get)"
    ),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with browser.serving(tmp_path_factory.mktemp("served") / "games.sqlite3") as found:
        yield found


@pytest.fixture(scope="module")
def driver() -> Iterator[object]:
    with browser.chromium() as found:
        yield found


@pytest.fixture
def page(driver, address) -> Iterator[Page]:
    found = Page(driver, address)
    found.go("#/")
    driver.execute_script("sessionStorage.clear(); localStorage.clear()")
    yield found
    # Refusals that the tests provoke are logged as failed loads; anything else is a fault of the page.
    assert [text for text in found.complaints() if "status of 4" not in text] == []


def won_calculation() -> tuple[int, list[int]]:
    """Return the first deal that the rule of thumb wins, and its actions."""
    game = get_game("Calculation-v0")
    policy = make_policy("thumb", game.id)
    for deal in range(100):
        hand = Play(game, game.check_options({}), deal)
        while not hand.over:
            hand.play(int(policy.act(hand.turn())[0]))
        if hand.won:
            return deal, hand.actions
    raise AssertionError("the rule of thumb wins a quarter of all deals")


def test_a_game_of_calculation_is_won_by_clicks(page):
    deal, actions = won_calculation()
    page.go(f"#/Calculation-v0/deal/{deal}")
    game = get_game("Calculation-v0")
    hand = Play(game, game.check_options({}), deal)
    for step, action in enumerate(actions):
        page.await_step(step)
        move = next(move for move in hand.moves if move.action == action)
        if page.picked() != [move.sources[0]]:
            assert move.sources[0] in page.lit() or page.picked()
            page.click_pile(move.sources[0])
        assert move.targets[0] in page.lit()
        page.click_pile(move.targets[0])
        hand.play(action)
    page.await_step(len(actions))
    assert f"Won, in {len(actions)} moves!" in page.text("#end")
    assert page.lit() == set()


def test_a_match_of_patience_poker_is_played_to_its_end(page):
    page.go("#/PatiencePoker-v0/match/9?placement=fixed&deals=2&against=flush-rank+greedy")
    for turn in range(2):
        for step in range(25):
            page.await_step(step)
            assert len(page.lit()) == 25 - step
            page.click_pile(f"r{step // 5 + 1}c{step % 5 + 1}")
        page.await_step(25)
        if turn == 0:
            assert "Deal 1 of 2 is finished" in page.text("#end")
            page.click("#next")
    assert "The match is" in page.text("#end")
    game = get_game("PatiencePoker-v0")
    options = game.check_options({"placement": "fixed"})
    policy = make_policy("flush-rank", game.id)
    total = mine = 0.0
    for deal in (9, 10):
        theirs, ours = Play(game, options, deal), Play(game, options, deal)
        for cell in range(25):
            theirs.play(int(policy.act(theirs.turn())[0]))
            ours.play(cell)
        total, mine = total + theirs.total, mine + ours.total
    cells = page.driver.execute_script(
        "return [...document.querySelectorAll('#totals td')].map((td) => td.textContent)"
    )
    assert [float(cell) for cell in cells[:2]] == [mine, total]


def test_a_game_goes_on_where_it_was_after_a_reload_and_after_the_way_back(page):
    page.go("#/PatiencePoker-v0/deal/17?placement=fixed")
    for step, cell in enumerate(("r1c1", "r3c3")):
        page.await_step(step)
        page.click_pile(cell)
    page.await_step(2)
    page.driver.refresh()
    page.await_step(2)
    assert (page.cards("r1c1"), page.cards("r3c3")) == (["AD"], ["8H"])
    page.driver.execute_script("location.hash = '#/'")
    page.wait("return document.body.dataset.ready === 'home'")
    page.driver.back()
    page.wait("return document.body.dataset.ready === 'deal'")
    page.await_step(2)
    page.click("#undo")
    page.await_step(1)
    assert page.cards("r3c3") == ["none"]


def test_a_game_goes_on_after_a_restart_of_the_server(driver, tmp_path):
    server, address = browser.start(tmp_path / "games.sqlite3")
    try:
        page = Page(driver, address)
        page.go("#/PatiencePoker-v0/deal/17?placement=fixed")
        page.await_step(0)
        page.click_pile("r1c1")
        page.await_step(1)
        browser.stop(server)
        page.click_pile("r2c2")
        page.wait("return document.getElementById('message').textContent.includes('does not answer')")
        port = address.rstrip("/").rpartition(":")[2]
        server, _ = browser.start(tmp_path / "games.sqlite3", "--port", port)
        page.click_pile("r2c2")
        page.await_step(2)
        assert (page.cards("r1c1"), page.cards("r2c2")) == (["AD"], ["8H"])
        page.complaints()  # the refused connection stands in the log; the next test begins with an empty one
    finally:
        browser.stop(server)


def test_two_tabs_on_one_game_do_not_quarrel_and_two_games_do_not_mix(page):
    driver = page.driver
    place = "#/PatiencePoker-v0/deal/21?placement=fixed"
    page.go(place)
    first = driver.current_window_handle
    driver.execute_script("window.open(location.href)")  # a copy, with the name of the game
    second = next(handle for handle in driver.window_handles if handle != first)
    driver.switch_to.window(second)
    page.wait("return document.body.dataset.ready === 'deal'")
    page.await_step(0)
    page.click_pile("r1c1")
    page.await_step(1)
    driver.switch_to.window(first)
    page.click_pile("r5c5")
    page.wait("return document.getElementById('message').textContent.includes('out of date')")
    page.await_step(1)
    assert page.cards("r5c5") == ["none"]
    page.click_pile("r5c5")
    page.await_step(2)
    driver.switch_to.new_window("tab")  # a game of its own on the same deal
    third = driver.current_window_handle
    page.go(place)
    page.await_step(0)
    for handle in (second, third):
        driver.switch_to.window(handle)
        driver.close()
    driver.switch_to.window(first)


def test_a_game_is_played_by_the_keyboard_alone(page):
    page.go("#/PatiencePoker-v0/deal/17?placement=fixed")
    keys = ActionChains(page.driver)
    keys.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ENTER).perform()
    page.await_step(1)
    assert page.cards("r2c2") == ["AD"]
    ActionChains(page.driver).send_keys("1").perform()
    page.await_step(2)
    assert page.cards("r1c1") == ["8H"]
    ActionChains(page.driver).send_keys("u").perform()
    page.await_step(1)
    ActionChains(page.driver).send_keys("h").perform()
    page.wait("return document.querySelector('.pile.hinted') !== null")
    label = page.pile("r2c2").get_attribute("aria-label")
    assert label == "r2c2: ace of diamonds"
    assert "can go here" in page.pile("r1c1").get_attribute("aria-label")


def test_values_are_shown_on_the_cells(page):
    page.go("#/PatiencePoker-v0/deal/17?placement=fixed")
    page.driver.execute_script(
        "const p = document.getElementById('policy'); p.value = 'flush-rank'; p.dispatchEvent(new Event('change'))"
    )
    page.click("#values")
    page.wait("return document.querySelectorAll('.value').length === 25")
    assert page.wait("return document.querySelectorAll('.value.best').length") >= 1


def test_a_recorded_game_is_replayed_with_the_slider(page):
    record = {"game": "Sultan-v0", "options": {"redeals": 1}, "deal": 2**63, "actions": [9, 9, 9], "version": "0"}
    page.go("#/replay")
    page.driver.find_element("css selector", "#record").send_keys(json.dumps(record))
    page.click("#load")
    page.await_step(0)
    slider = page.driver.find_element("css selector", "#slider")
    slider.send_keys(Keys.END)
    page.await_step(3)
    slider.send_keys(Keys.ARROW_LEFT)
    page.await_step(2)
    assert str(2**63) in page.text("#main")


@pytest.mark.parametrize("game_id", ["PatiencePoker-v0", "Calculation-v0", "Sultan-v0", "EmpressOfIndia-v0"])
def test_the_page_fits_narrow_screens(page, game_id):
    narrow = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
    try:
        page.go(f"#/{game_id}/deal/1")
        page.await_step(0)
        assert page.driver.execute_script("return document.documentElement.scrollWidth") <= 360
        least = page.driver.execute_script(
            "const widths = [...document.querySelectorAll('button.pile')].map((pile) => pile.clientWidth);"
            "return Math.min(...widths)"
        )
        assert least >= 24  # a finger's least, by the accessibility guidelines
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_an_unknown_address_leads_back_to_the_games(page):
    page.go("#/Chess-v0/deal/1")
    page.wait("return document.querySelector('.fault') !== null")
    assert "there is no game 'Chess-v0'" in page.text(".fault")
