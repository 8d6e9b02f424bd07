// Exchanges a token for a cookie. The link that `emugpu dashboard` prints carries its token behind the #, which browsers send to no server.

import { send } from "./shared/api.js";
import { byId } from "./shared/dom.js";
import { PAGE_PATHS, trouble } from "./shared/frame.js";

// The address to go to after signing in. `next` comes from the URL, so anybody can have written it: only this site's pages are
// accepted, compared as URLs after parsing ("/.//evil.example" parses to the path "//evil.example", which names another host).
function addressAfterSignIn() {
  const home = new URL("/", location.origin);
  const next = new URLSearchParams(location.search).get("next") ?? "/";
  if (!URL.canParse(next, home)) return home.href;
  const url = new URL(next, home);
  return next.startsWith("/") && url.origin === home.origin && PAGE_PATHS.includes(url.pathname) ? url.href : home.href;
}

async function exchange(token) {
  try {
    await send("POST", "/session", { Authorization: `Bearer ${token}` });
    location.replace(addressAfterSignIn());
  } catch (error) { trouble(error); }
}

// Also where this page is open already and the link is given to its tab: then only the part behind the # changes.
function carried() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  history.replaceState(null, "", location.pathname + location.search);
  if (token) exchange(token);
}

carried();
addEventListener("hashchange", carried);
byId("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  exchange(byId("token").value.trim());
});
