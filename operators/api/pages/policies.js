// The policies, as the server's data has them.

import { get } from "./api.js";
import { byId, el, fill, table } from "./dom.js";
import { framed } from "./frame.js";

framed(async () => {
  const { items } = await get("/policies");
  fill(byId("policies"), table([
    { title: "policy", cell: (policy) => el("code", {}, policy.name) },
    { title: "what it does", cell: (policy) => policy.summary, wrap: true },
    { title: "preempts", cell: (policy) => (policy.preemptive ? "yes" : "no") },
    { title: "estimates", cell: (policy) => (policy.needs_estimates ? "needed" : "not needed"), less: true },
    { title: "options", cell: (policy) => Object.entries(policy.options).map(([name, value]) => `${name}=${value}`).join(", ") || "–", wrap: true },
  ], items, { nothing: "There is no policy." }));
});
