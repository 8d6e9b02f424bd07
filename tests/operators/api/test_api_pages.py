"""The pages in a real browser: what each shows, by keyboard, in both colours, on a narrow screen, with ten thousand jobs.

Skipped where this machine has no Chromium; the files themselves are looked at everywhere.
"""

from __future__ import annotations

import asyncio
import posixpath
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest
import uvicorn

from operators.api.application import application
from operators.api.model.snapshot import Cluster, JobRun
from operators.api.replies.static_files import CHARTS, TITLES, Pages
from operators.api.web_server import listening
from tests.support.browser import Browser, browser_path

PAGES = {name: "" if name == "index" else name for name in TITLES if name not in ("job", "sign-in")}
pytestmark = pytest.mark.timeout(120)
NODES = "egpu-1 study-worker, egpu-2 study-worker2, cpu-1 study-worker3"
SIGNED_IN = "location.pathname !== '/sign-in'"
SIGNING_IN = "location.pathname === '/sign-in' && document.readyState === 'complete'"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = browser_path()
    if program is None:
        pytest.skip("this machine has no Chromium")
    with Browser(program) as found:
        yield found


@pytest.fixture(scope="module")
def told(make_told: Any) -> Any:
    return make_told()


@pytest.fixture(scope="module")
def site(make_services: Any, told: Any) -> Iterator[str]:
    """A server on loopback over `told`; its address."""
    app = application(make_services(source=told, stream_s=30.0, heartbeat_s=10.0))
    with listening("127.0.0.1", 0) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = server.force_exit = True
        thread.join(10)


@pytest.fixture
def stranger(browser: Browser, site: str, told: Any, make_snapshot: Any) -> Iterator[Browser]:
    """Not signed in, with nothing kept from before; the browser logs each 401 and 403 as a complaint."""
    told.now = make_snapshot()
    browser.look()
    browser.call("Network.clearBrowserCookies")
    browser.goto(f"{site}/sign-in")
    browser.run("localStorage.clear(); sessionStorage.clear()")
    yield browser
    browser.goto("about:blank")
    browser.complaints.clear()


@pytest.fixture
def page(stranger: Browser, site: str) -> Iterator[Browser]:
    """Signed in, at the overview; every test must leave without a complaint of the browser."""
    stranger.goto(f"{site}/sign-in#token=root-token")
    stranger.until(SIGNED_IN)
    stranger.complaints.clear()
    yield stranger
    assert stranger.complaints == []


def shown(page: Browser, url: str, selector: str) -> None:
    """The page, once this is in it."""
    page.goto(url)
    page.until(f"document.querySelector({selector!r}) !== null")


def text_of(page: Browser, selector: str) -> str:
    return str(page.run(f"document.querySelector({selector!r}).innerText"))


# --- each page ---------------------------------------------------------------------------------------------------------------


def test_overview(page: Browser, site: str) -> None:
    shown(page, f"{site}/?window=all", "#load .main-svg")
    tiles = text_of(page, "#tiles").split()
    assert tiles[:4] == ["1", "running", "1", "waiting"]
    assert "job-1" in text_of(page, "#running")
    assert "job-3" in text_of(page, "#ended")


def test_overview_of_a_comparison(page: Browser, site: str, told: Any, make_job: Any, make_snapshot: Any) -> None:
    """All of it has ended; a prediction has no error of its own."""
    ended: dict[str, Any] = {"experiment": "e", "policy": "fifo", "phase": "Succeeded", "finished_s": 9.0, "jct_s": 8.0}
    jobs = (
        make_job(1, run="e.1", cluster="simulated", predicted_jct_s=8.0, **ended),
        make_job(2, run="e.2", cluster="local", predicted_jct_s=10.0, error=0.25, **ended),
    )
    told.now = make_snapshot(jobs, cluster=Cluster("comparison", "comparison", "emulated", "e", writable=False))
    shown(page, f"{site}/?run=e.2", "#load .main-svg")
    assert "+25.0%\nerror of the prediction" in text_of(page, "#tiles")
    assert "job-2" in text_of(page, "#ended")
    assert page.run("document.querySelector('#running-section').hidden")
    shown(page, f"{site}/?run=e.1", "#load .main-svg")
    assert "error" not in text_of(page, "#tiles")


def test_nodes_and_devices(page: Browser, site: str) -> None:
    shown(page, f"{site}/nodes?window=all", "#occupancy .main-svg")
    devices = text_of(page, "#devices")
    assert "bad: marked" in devices
    assert "job-1" in devices  # as the holder of w1/0
    assert page.run("document.querySelectorAll('#nodes tbody tr').length") == 2
    assert page.run("document.querySelectorAll('#occupancy .bars .point').length") == 2
    page.run("document.querySelector('#spans-details').open = true")
    assert "job-3" in text_of(page, "#spans")


def test_a_job(page: Browser, site: str, told: Any) -> None:
    shown(page, f"{site}/job?uid=u1", "#steps .main-svg")
    assert text_of(page, "h1") == "job-1"
    assert "Accepted" in text_of(page, "#story")
    assert "a note" in text_of(page, "#story")
    assert "w1/0" in text_of(page, "#runs")
    told.asked.clear()
    page.run("document.querySelector('#facts button').click()")
    page.until("document.querySelector('#facts button:not(:disabled)') !== null")
    assert told.asked == [("u1", True)]


def test_a_job_whose_steps_nobody_can_tell(
    page: Browser, site: str, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(told, "store", "results.db: file is not a database; move it away")
    shown(page, f"{site}/job?uid=u1", "#steps .empty")
    assert "move it away" in text_of(page, "#steps")
    assert "only the data of Kubernetes: results.db" in text_of(page, "#story")
    assert "w1/0" in text_of(page, "#runs")
    page.until("document.querySelector('#facts button') !== null")
    assert all("503" in complaint for complaint in page.complaints)
    page.complaints.clear()


def test_experiments(page: Browser, site: str, told: Any, make_job: Any, make_snapshot: Any) -> None:
    pairs = [(run, f"{run}{n}") for run in ("e.1", "e.2") for n in range(5)]
    told.now = make_snapshot(
        tuple(
            make_job(
                n,
                uid=uid,
                run=run,
                experiment="e",
                policy="fifo",
                cluster="simulated" if run == "e.1" else "local",
                phase="Succeeded",
                finished_s=20.0,
                jct_s=5.0 + n,
                predicted_jct_s=6.0 + n,
            )
            for n, (run, uid) in enumerate(pairs)
        ),
        runs={},
        experiments=(replace(make_snapshot().experiments[0], meta={"nodes by name": NODES, "seed": "0"}),),
    )
    shown(page, f"{site}/experiments", "#scatter .main-svg")
    rows = page.run("[...document.querySelectorAll('#figures tbody tr')].map((row) => row.cells[1].innerText)")
    assert rows == ["predicted", "observed", "error"]
    assert page.run("document.querySelectorAll('#scatter .scatterlayer .point').length") == 5
    assert page.run("document.querySelectorAll('#cdf .scatterlayer .trace').length") == 2
    assert text_of(page, "#meta .long") == "nodes by name\n" + NODES


def test_policies(page: Browser, site: str) -> None:
    shown(page, f"{site}/policies", "#policies tbody tr")
    assert "synergy" in text_of(page, "#policies")
    assert "threshold_s=60" in text_of(page, "#policies")


def test_nothing_is_there_yet(page: Browser, site: str, told: Any, make_job: Any, make_snapshot: Any) -> None:
    told.now = replace(make_snapshot(runs={}), jobs=(), nodes=(), devices=(), experiments=())
    for name, text in (
        ("", "Nothing runs now"),
        ("nodes", "There is no node"),
        ("jobs", "No job matches"),
        ("experiments", "No experiment yet"),
    ):
        page.goto(f"{site}/{name}")
        page.until(f"document.body.innerText.includes({text!r})")
        assert page.run("document.querySelector('#trouble').hidden"), name


# --- who may not, what goes wrong ---------------------------------------------------------------------------------------------


def test_without_a_session_one_signs_in_and_comes_back(stranger: Browser, site: str) -> None:
    stranger.goto(f"{site}/jobs?phase=Running")
    stranger.until(SIGNING_IN)
    stranger.run("document.querySelector('#token').value = 'wrong'; document.querySelector('form').requestSubmit()")
    stranger.until("!document.querySelector('#trouble').hidden")
    assert "invalid" in text_of(stranger, "#trouble")
    stranger.run(
        "document.querySelector('#token').value = 'root-token'; document.querySelector('form').requestSubmit()"
    )
    stranger.until("location.pathname + location.search === '/jobs?phase=Running'")
    assert stranger.run("document.cookie") == ""  # scripts don't see it


ELSEWHERE = (
    *("https://evil.example/x", "https:evil.example", "//evil.example", "///evil.example", "/.//evil.example"),
    *("/..//evil.example", "/jobs/..//evil.example", "/\\evil.example", "\\\\evil.example", "/\t/evil.example"),
    *("/\n/evil.example", "\t//evil.example", "/%2f/evil.example", "/%2F%2Fevil.example", "/%5cevil.example"),
    *("/%252f%252fevil.example", "evil.example", "@evil.example", "javascript:alert(1)", "data:text/html,x"),
    *("http:", "//", "/sign-in", "/api/v1/session", "/jobs//evil.example", "http://[", "/\r\n/evil.example"),
)


def test_after_signing_in_nobody_is_sent_elsewhere(stranger: Browser, site: str) -> None:
    for target in ELSEWHERE:
        stranger.goto("about:blank")
        stranger.goto(f"{site}/sign-in?{urlencode({'next': target})}#token=root-token")
        stranger.until(SIGNED_IN)
        assert stranger.run("location.href") == f"{site}/", target


@pytest.mark.parametrize("target", ["/jobs?phase=Running", "/job?uid=u1", "/nodes?window=all", "/experiments", "/"])
def test_after_signing_in_the_page_that_was_asked_for_is_shown(stranger: Browser, site: str, target: str) -> None:
    stranger.goto(f"{site}/sign-in?{urlencode({'next': target})}#token=root-token")
    stranger.until(SIGNED_IN)
    assert stranger.run("location.href") == f"{site}{target}"


def test_a_link_works_where_the_sign_in_is_open(stranger: Browser, site: str) -> None:
    stranger.goto(f"{site}/sign-in")
    stranger.goto(f"{site}/sign-in#token=root-token")
    stranger.until(SIGNED_IN)


def test_the_token_leaves_the_address(stranger: Browser, site: str) -> None:
    stranger.goto(f"{site}/sign-in#token=wrong")
    stranger.until("!document.querySelector('#trouble').hidden")
    assert "wrong" not in stranger.run("location.href")


def test_who_may_read_one_namespace_names_it(stranger: Browser, site: str) -> None:
    stranger.goto(f"{site}/sign-in#token=ann-token")
    stranger.until(SIGNED_IN)
    stranger.goto(f"{site}/jobs")
    stranger.until("!document.querySelector('#trouble').hidden")
    assert "Name yours" in text_of(stranger, "#trouble")
    for name, wrong in (("No name", True), ("lab", False)):
        stranger.run(f"document.querySelector('#tools input').value = {name!r}")
        assert stranger.run("document.querySelector('#tools input').validity.patternMismatch") is wrong
    stranger.run("document.querySelector('#tools input').focus()")
    stranger.press("Enter", 13, "\r")
    stranger.until("document.querySelector('#count')?.innerText === '2 jobs'")


def test_a_name_is_never_markup(page: Browser, site: str, told: Any, make_job: Any, make_snapshot: Any) -> None:
    name = "<img src=x onerror=alert(1)><b>bold</b>"
    jobs = (
        make_job(1, name=name, phase="Running", gpus=1, devices=("w1/0",), nodes=("w1",), reason=name, started_s=1.0),
    )
    told.now = make_snapshot(jobs, runs={"u1": (JobRun("w1", ("w1/0",), 2.0),)})
    for path, selector in (
        ("?window=all", "#load .main-svg"),
        ("nodes?window=all", "#occupancy .main-svg"),
        ("jobs", "#jobs[data-shown]"),
        ("job?uid=u1", "#runs table"),
    ):
        shown(page, f"{site}/{path}", selector)
        assert page.run("document.querySelectorAll('main img, main b b, main td b').length") == 0, path


# --- changes ------------------------------------------------------------------------------------------------------------------


def test_a_page_follows_what_changes(page: Browser, site: str, told: Any) -> None:
    shown(page, f"{site}/jobs", "#jobs[data-shown]")
    page.until("document.querySelector('.link').dataset.state === 'live'")
    assert "Queued" in text_of(page, "#jobs")
    told.change("u2", phase="Running")
    page.until("document.querySelector('#jobs').innerText.split('Running').length === 3")


def test_a_window_of_time_goes_on(page: Browser, site: str, told: Any) -> None:
    """The last hour is that before each look, not that before the page was opened."""
    shown(page, f"{site}/?window=3600", "#tiles li")
    page.until("document.querySelector('.link').dataset.state === 'live'")
    page.run(ASKED)
    told.change("u2", phase="Running")
    page.until("asked.length > 0")
    since_s = float(page.run("new URL(asked[0], location).searchParams.get('since_s')"))
    assert 10.0 + 600.0 <= since_s + 3600.0 < 10.0 + 660.0  # the source's clock was at 10 when the page was opened


# --- by keyboard --------------------------------------------------------------------------------------------------------------


IN_SIGHT = """(() => {
  const row = document.activeElement.getBoundingClientRect();
  const grid = document.querySelector('.grid').getBoundingClientRect();
  return row.top >= grid.top && row.bottom <= grid.bottom + 1;
})()"""
ASKED = """(() => {
  const before = fetch;
  globalThis.asked = [];
  globalThis.fetch = (url, ...more) => { if (url.includes('/queue')) asked.push(url); return before(url, ...more); };
  const clock = performance.now.bind(performance);
  performance.now = () => clock() + 600000;
})()"""
SEARCH = """(() => {
  const input = document.querySelector('#filters input');
  input.value = 'train-0019';
  input.dispatchEvent(new Event('input'));
})()"""


def many(make_job: Any, make_snapshot: Any, count: int) -> Any:
    phases = ("Succeeded", "Running", "Queued", "Failed")
    return make_snapshot(
        tuple(
            make_job(
                n,
                name=f"train-{n:05}",
                uid=f"{n:08x}",
                namespace=f"team-{n % 7}",
                phase=phases[n % 4],
                policy="allox",
                gpus=n % 8,
                nodes=(f"w{n % 90}",),
                steps=1000,
                steps_done=n % 1000,
                jct_s=n / 3 if n % 4 == 0 else None,
                finished_s=n + 1.0 if n % 4 == 0 else None,
            )
            for n in range(count)
        ),
        runs={},
    )


def test_ten_thousand_jobs_by_keyboard(page: Browser, site: str, told: Any, make_job: Any, make_snapshot: Any) -> None:
    told.now = many(make_job, make_snapshot, 10_000)
    shown(page, f"{site}/jobs", "#jobs[data-shown]")
    assert text_of(page, "#count") == "10,000 jobs"
    assert page.run("document.querySelectorAll('#jobs tbody tr').length") < 100
    assert page.run("document.querySelector('#jobs table').getAttribute('aria-rowcount')") == "10001"
    page.run("document.querySelector('#jobs tr[tabindex=\"0\"]').focus()")
    focused = "document.activeElement.getAttribute('aria-rowindex')"
    for key, index in (("ArrowDown", "3"), ("ArrowDown", "4"), ("ArrowUp", "3"), ("End", "10001"), ("Home", "2")):
        page.press(key)
        assert page.run(focused) == index, key
        assert page.run(IN_SIGHT), key
    page.press("PageDown")
    assert int(page.run(focused)) > 10
    page.press("Enter", 13, "\r")
    page.until("location.pathname === '/job'")


def test_filters_and_order(page: Browser, site: str, told: Any, make_job: Any, make_snapshot: Any) -> None:
    told.now = many(make_job, make_snapshot, 200)
    shown(page, f"{site}/jobs?phase=Failed", "#jobs[data-shown]")
    assert text_of(page, "#count") == "50 of 200 jobs"
    page.run(SEARCH)
    assert text_of(page, "#count") == "3 of 200 jobs"
    assert page.run("new URLSearchParams(location.search).get('q')") == "train-0019"
    names = "[...document.querySelectorAll('#jobs tbody tr td:first-child')].map((cell) => cell.innerText)"
    page.run("document.querySelector('th[data-key=name] button').click()")
    assert page.run("document.querySelector('th[data-key=name]').getAttribute('aria-sort')") == "ascending"
    assert page.run(names) == ["train-00191", "train-00195", "train-00199"]
    page.run("document.querySelector('th[data-key=name] button').click()")
    assert page.run(names) == ["train-00199", "train-00195", "train-00191"]


def test_what_is_not_known_comes_last_both_ways(
    page: Browser, site: str, told: Any, make_job: Any, make_snapshot: Any
) -> None:
    told.now = many(make_job, make_snapshot, 12)
    shown(page, f"{site}/jobs", "#jobs[data-shown]")
    cells = "[...document.querySelectorAll('#jobs tbody tr')].map((row) => row.cells[7].innerText)"
    for _ in range(2):
        page.run("document.querySelector('th[data-key=jct_s] button').click()")
        found = page.run(cells)
        assert found[3:] == ["–"] * 9 and "–" not in found[:3], found


def test_what_is_alike_is_in_order_of_names(
    page: Browser, site: str, told: Any, make_job: Any, make_snapshot: Any
) -> None:
    numbers = (10, 9, 2, 1)
    told.now = make_snapshot(tuple(make_job(n, name=f"job-{n}", submitted_s=0.0) for n in numbers), runs={})
    shown(page, f"{site}/jobs", "#jobs[data-shown]")
    names = "[...document.querySelectorAll('#jobs tbody tr td:first-child')].map((cell) => cell.innerText)"
    assert page.run(names) == ["job-1", "job-2", "job-9", "job-10"]


@pytest.mark.parametrize("name", [*PAGES, "job"])
def test_tab_goes_everywhere_and_out_again(page: Browser, site: str, name: str) -> None:
    """Every stop is in sight and marked; the first is the skip link; after the last comes the first again: no trap."""
    path = "job?uid=u1" if name == "job" else PAGES[name]
    page.goto(f"{site}/{path}")
    page.until("document.querySelector('#foot').innerText !== ''")
    page.run("document.body.focus()")
    stops: list[str] = []
    for _ in range(80):
        page.press("Tab", 9)
        where = page.run(
            "(() => { const e = document.activeElement; if (e === document.body) return ''; const s = getComputedStyle(e);"
            " return [e.tagName, e.id, e.className, (e.innerText ?? '').slice(0, 20), s.outlineStyle].join('|'); })()"
        )
        if not where or (stops and where == stops[0]):
            break
        stops.append(where)
    else:
        raise AssertionError(f"Tab never comes back: {stops}")
    assert stops[0].startswith("A||skip|Skip")
    assert len(stops) >= 9
    assert all(not stop.endswith("|none") for stop in stops), stops


def test_the_skip_link_goes_to_the_content(page: Browser, site: str) -> None:
    shown(page, f"{site}/policies", "#policies tbody tr")
    page.press("Tab", 9)
    page.press("Enter", 13, "\r")
    assert page.run("document.activeElement.id") == "main"


# --- looks --------------------------------------------------------------------------------------------------------------------

CONTRAST = """(() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = parse(getComputedStyle(each).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const element of document.querySelectorAll('main *, #top *')) {
    const own = [...element.childNodes].some((each) => each.nodeType === 3 && each.textContent.trim());
    if (!own || !element.getClientRects().length || element.closest('svg')) continue;
    const [high, low] = [light(parse(getComputedStyle(element).color)), light(behind(element))].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) bad.push(`${element.tagName} ${element.className} ${element.innerText.slice(0, 20)} ${ratio.toFixed(2)}`);
  }
  return bad;
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", [*PAGES, "job"])
def test_text_can_be_read(page: Browser, site: str, name: str, dark: bool) -> None:
    """WCAG 2.2, 1.4.3 (AA): a contrast of 4.5 to 1."""
    page.look(dark=dark)
    page.goto(f"{site}/{'job?uid=u1' if name == 'job' else PAGES[name]}")
    page.until("document.querySelector('#foot').innerText !== ''")
    back = page.run("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(20, 23, 27)") is dark
    assert page.run(CONTRAST) == []


@pytest.mark.parametrize("name", [*PAGES, "job"])
def test_a_narrow_screen_is_wide_enough(page: Browser, site: str, name: str) -> None:
    page.look(width=400, height=800)
    page.goto(f"{site}/{'job?uid=u1' if name == 'job' else PAGES[name]}")
    page.until("document.querySelector('#foot').innerText !== ''")
    assert page.run("document.documentElement.scrollWidth") == 400


def test_the_switch_of_colours_is_remembered(page: Browser, site: str) -> None:
    shown(page, f"{site}/policies", "#policies tbody tr")
    page.run(
        "(() => { const s = document.querySelector('#tools select'); s.value = 'dark'; s.dispatchEvent(new Event('change')); })()"
    )
    shown(page, f"{site}/experiments", "#foot:not(:empty)")
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"


# --- the files ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages() -> Pages:
    return Pages()


def test_every_page_names_files_that_exist(pages: Pages) -> None:
    for name, page in pages.pages.items():
        text = page.decode()
        assert "{{" not in text, name
        found = re.findall(rf"/assets/{pages.digest}/([a-z./-]+)", text)
        assert {f"{name}.js", "shared/look.css", "shared/theme.js"} <= set(found)
        assert set(found) <= set(pages.assets), name


def test_modules_import_files_that_exist(pages: Pages) -> None:
    for name, text in pages.assets.items():
        for other in re.findall(r'from "\./([^"]+)"', text.decode()):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), other))
            assert path in pages.assets, f"{name} imports {other}"


def test_no_page_has_a_script_or_a_style_of_its_own(pages: Pages) -> None:
    for name, page in pages.pages.items():
        text = page.decode()
        assert not re.search(r"<script(?![^>]*\ssrc=)", text), name
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", text), name


def test_nothing_is_fetched_from_elsewhere(pages: Pages) -> None:
    for name, text in {**pages.assets, **pages.pages}.items():
        addresses = set(re.findall(rb"https?://[^\s\"'`)]+", text))
        assert addresses <= {b"http://www.w3.org/2000/svg"}, name


def test_assets_are_kept_for_ever_under_their_digest(place: Any, pages: Pages) -> None:
    reply = place.client.get(f"/assets/{pages.digest}/shared/look.css")
    assert (reply.status_code, reply.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
    assert place.client.get("/assets/0000000000000000/shared/look.css").status_code == 404
    assert place.client.get(f"/assets/{pages.digest}/nothing.css").status_code == 404
    assert place.client.get("/jobs").headers["cache-control"] == "no-cache"


def test_the_chart_library_is_packed(place: Any, pages: Pages) -> None:
    path = f"/assets/{pages.digest}/{CHARTS}"
    packed = place.client.get(path)
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < 2_000_000 < len(packed.content)
    assert b"plotly.js" in packed.content[:200]
    plain = place.client.get(path, headers={"Accept-Encoding": "identity"})
    assert plain.content == packed.content
    assert "content-encoding" not in plain.headers


def test_without_the_chart_library_its_absence_is_reported(
    place: Any, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operators.api.replies.static_files.Pages.charts", lambda *_, **__: _nothing())
    reply = place.client.get(f"/assets/{pages.digest}/{CHARTS}")
    assert (reply.status_code, reply.json()["message"]) == (404, "charts need the package plotly: pip install plotly")


async def _nothing() -> None:
    return None
