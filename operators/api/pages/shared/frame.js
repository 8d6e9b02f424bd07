// What every page has around its content: navigation, theme, namespace, the user, and whether events arrive.

import { Refused, chooseNamespace, chosenNamespace, get, send } from "./api.js";
import { byId, el, fill } from "./dom.js";
import { follow } from "./live.js";

const PAGES = [["/", "index", "Overview"], ["/nodes", "nodes", "Nodes"], ["/jobs", "jobs", "Jobs"],
  ["/experiments", "experiments", "Experiments"], ["/policies", "policies", "Policies"]];
export const PAGE_PATHS = [...PAGES.map(([path]) => path), "/job"];
const THEMES = [["", "system colours"], ["light", "light"], ["dark", "dark"]];

const read = new Map();

// Now on the source's clock, which isn't this browser's; the page may have been open for long.
export function nowOf(state) {
  return state.cluster.clock === "wall" ? state.now_s + (performance.now() - read.get(state)) / 1000 : state.now_s;
}

export function trouble(error) {
  const place = byId("trouble");
  place.hidden = false;
  place.textContent = error instanceof TypeError ? "The server can't be reached; is it still running?" : error.message;
  if (!(error instanceof Refused) && !(error instanceof TypeError)) console.error(error);
}

export function fine() {
  byId("trouble").hidden = true;
}

function navigation() {
  const here = document.body.dataset.page;
  const shown = here === "job" ? "jobs" : here;
  fill(byId("nav"), PAGES.map(([href, page, title]) =>
    el("a", { href, "aria-current": page === shown ? "page" : null }, title)));
}

function themeChoice() {
  const now = document.documentElement.dataset.theme ?? "";
  const select = el("select", { "aria-label": "Colours", onchange: () => {
    if (select.value) document.documentElement.dataset.theme = select.value;
    else delete document.documentElement.dataset.theme;
    try { localStorage.setItem("emugpu-theme", select.value); } catch { /* then it holds for this page only */ }
    dispatchEvent(new Event("themechange"));
  } }, THEMES.map(([value, text]) => el("option", { value, selected: value === now }, text)));
  return select;
}

function namespaceChoice(session) {
  if (session.everything && !chosenNamespace()) return null;
  const input = el("input", { value: chosenNamespace(), placeholder: session.everything ? "all" : "namespace", size: 12,
    "aria-label": "Namespace", pattern: "[a-z0-9]([\\-a-z0-9]{0,61}[a-z0-9])?" });
  return el("form", { onsubmit: (event) => {
    event.preventDefault();
    chooseNamespace(input.value);
    location.reload();
  } }, input);
}

async function signOut() {
  try { await send("DELETE", "/session"); } catch (error) { trouble(error); return; }
  location.assign("/sign-in");
}

// The page's frame, then `page(cluster)` with what GET /clusters says; `told` gets what changes afterwards.
export async function framed(page, told = null) {
  navigation();
  const tools = byId("tools");
  fill(tools, themeChoice());
  try {
    const session = await get("/session");
    const link = el("span", { class: "link", "data-state": "off", role: "status" }, "connecting");
    const out = el("button", { type: "button", onclick: signOut }, "Sign out");
    fill(tools, namespaceChoice(session), themeChoice(), told ? link : null, out);
    if (!session.everything && !chosenNamespace()) {
      throw new Error(`${session.user} may not read all namespaces. Name yours at the top of the page.`);
    }
    const { items: [state] } = await get("/clusters");
    read.set(state, performance.now());
    if (state.cluster.problem) trouble(new Error(state.cluster.problem));
    byId("foot").textContent = state.cluster.title;
    await page(state);
    if (told) {
      follow(told, state.event, (word) => {
        link.dataset.state = word;
        link.textContent = word === "live" ? "live" : "connecting";
      });
    }
  } catch (error) {
    trouble(error);
  }
}
