// A token for a cookie. A laptop's link carries its token behind the #, which no server and no other page gets to see.

import { send } from "./shared/api.js";
import { byId } from "./shared/dom.js";
import { trouble } from "./shared/frame.js";

function next() {
  const wanted = new URLSearchParams(location.search).get("next") ?? "/";
  const url = new URL(wanted, location.origin);
  return url.origin === location.origin ? url.pathname + url.search : "/";
}

async function exchange(token) {
  try {
    await send("POST", "/session", { Authorization: `Bearer ${token}` });
    location.replace(next());
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
