// The policies, as the server's data has them.

import { get } from "./shared/api.js";
import { byId, el, fill, table } from "./shared/dom.js";
import { framed } from "./shared/frame.js";

function told(policy) {
  const options = Object.entries(policy.options).flatMap(([name, value], index) => [index ? ", " : "options: ", el("code", {}, `${name}=${value}`)]);
  return el("div", {}, policy.summary.replaceAll("`", ""), options.length ? el("div", { class: "muted" }, options) : null);
}

framed(async () => {
  const { items } = await get("/policies");
  fill(byId("policies"), table([
    { title: "policy", cell: (policy) => el("code", {}, policy.name) },
    { title: "what it does", cell: told, wrap: true },
    { title: "preempts", cell: (policy) => (policy.preemptive ? "yes" : "no"), less: true },
    { title: "estimates", cell: (policy) => (policy.needs_estimates ? "needed" : "not needed"), less: true },
  ], items, { nothing: "There is no policy." }));
});
