// The only file that talks to the server.

const PREFIX = "/api/v1";

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.message);
    this.status = status;
    this.code = problem.code;
  }
}

export function chosenNamespace() {
  try { return sessionStorage.getItem("emugpu-namespace") ?? ""; } catch { return ""; }
}

export function chooseNamespace(name) {
  try { sessionStorage.setItem("emugpu-namespace", name); } catch { /* then it holds for this page only */ }
}

export function address(path, parameters = {}) {
  const query = new URLSearchParams();
  const all = { namespace: chosenNamespace(), ...parameters };
  for (const [name, value] of Object.entries(all)) {
    if (value === null || value === undefined || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) query.append(name, each);
  }
  const text = query.toString();
  return `${PREFIX}${path}${text ? `?${text}` : ""}`;
}

async function answered(reply) {
  if (reply.ok) return reply.status === 204 ? null : reply.json();
  const problem = await reply.json().catch(() => ({ message: `the server answered ${reply.status}`, code: "error" }));
  if (reply.status === 401 && document.body.dataset.page !== "sign-in") {
    location.assign(`/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`);
    await new Promise(() => {}); // the page is being left
  }
  throw new Refused(reply.status, problem);
}

export async function get(path, parameters = {}) {
  return answered(await fetch(address(path, parameters), { headers: { Accept: "application/json" } }));
}

export async function send(method, path, headers = {}) {
  return answered(await fetch(PREFIX + path, { method, headers: { "X-Emugpu-Request": "1", ...headers } }));
}

// Every job that matches, page by page; `arrived` gets each page as soon as it is there.
export async function allJobs(parameters, arrived) {
  let cursor = null;
  do {
    const page = await get("/jobs", { ...parameters, limit: 10000, cursor });
    arrived(page.items, page.total);
    cursor = page.next;
  } while (cursor !== null);
}
