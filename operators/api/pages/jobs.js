// All jobs: ten thousand rows to filter and sort, kept as they change.

import { allJobs, get } from "./shared/api.js";
import { observedFirst, parameter, setParameter } from "./shared/choose.js";
import { byId, choice, el, fill, jobLink, phase } from "./shared/dom.js";
import { count, moment, percent, progress, runName, seconds } from "./shared/format.js";
import { fine, framed, trouble } from "./shared/frame.js";
import { Grid } from "./shared/grid.js";
import { calmly } from "./shared/live.js";

const FIELDS = ["name", "kind", "namespace", "tenant", "phase", "policy", "run", "cluster", "gpus", "nodes", "steps", "steps_done", "submitted_s",
  "queueing_delay_s", "jct_s", "predicted_jct_s", "error", "preemptions"];
const PHASES = ["Pending", "Queued", "Starting", "Running", "Preempted", "Succeeded", "Failed", "Rejected"];
const jobs = new Map();
const filters = { q: parameter("q"), phase: parameter("phase"), policy: parameter("policy"), run: parameter("run"), namespace: parameter("in") };
let grid = null;

function columns(clock) {
  const name = { key: "name", title: "job", cell: (job) => jobLink(job, { tabindex: -1 }), hint: (job) => job.name };
  const state = { key: "phase", title: "phase", cell: (job) => phase(job.phase) };
  const wall = [
    name, state,
    { key: "namespace", title: "namespace", less: true, cell: (job) => job.namespace },
    { key: "policy", title: "policy", less: true, cell: (job) => job.policy || "–", hint: (job) => job.policy },
    { key: "gpus", title: "GPUs", number: true, cell: (job) => count(job.gpus) },
    { key: "nodes", title: "node", less: true, value: (job) => job.nodes[0] ?? "", cell: (job) => job.nodes.join(", "), hint: (job) => job.nodes.join(", ") },
    { key: "steps_done", title: "steps", number: true, less: true, value: (job) => (job.steps ? (job.steps_done ?? 0) / job.steps : null), cell: progress },
  ];
  const emulated = [
    name, state,
    { key: "tenant", title: "user", less: true, cell: (job) => job.tenant },
    { key: "policy", title: "policy", less: true, cell: (job) => job.policy, hint: (job) => job.policy },
    { key: "cluster", title: "cluster", less: true, cell: (job) => (job.cluster === "simulated" ? "predicted" : job.cluster) },
    { key: "gpus", title: "GPUs", number: true, less: true, cell: (job) => count(job.gpus) },
    { key: "nodes", title: "node", less: true, value: (job) => job.nodes[0] ?? "", cell: (job) => job.nodes.join(", "), hint: (job) => job.nodes.join(", ") },
  ];
  return [
    ...(clock === "wall" ? wall : emulated),
    { key: "jct_s", title: "JCT", number: true, cell: (job) => seconds(job.jct_s) },
    { key: "predicted_jct_s", title: "predicted", number: true, less: true, cell: (job) => seconds(job.predicted_jct_s) },
    { key: "error", title: "error", number: true, less: true, cell: (job) => percent(job.error) },
    { key: "queueing_delay_s", title: "waited", number: true, less: true, cell: (job) => seconds(job.queueing_delay_s) },
    { key: "submitted_s", title: "submitted", number: true, less: true, cell: (job) => moment(clock, job.submitted_s) },
    { key: "preemptions", title: "preempted", number: true, less: true, cell: (job) => count(job.preemptions) },
    ...(clock === "wall" ? [{ key: "kind", title: "kind", less: true, cell: (job) => job.kind }] : []),
  ];
}

function matches(job) {
  const wanted = filters.q.toLowerCase();
  return (!filters.phase || job.phase === filters.phase) && (!filters.policy || (job.policy || "none") === filters.policy) && (["", "all"].includes(filters.run) || job.run === filters.run)
    && (!filters.namespace || job.namespace === filters.namespace)
    && (!wanted || `${job.name} ${job.tenant} ${job.nodes.join(" ")}`.toLowerCase().includes(wanted));
}

function show() {
  const found = [...jobs.values()].filter(matches);
  grid.show(found);
  byId("count").textContent = found.length === jobs.size ? `${count(jobs.size)} jobs` : `${count(found.length)} of ${count(jobs.size)} jobs`;
}

function filterForm(state, experiments) {
  const form = byId("filters");
  const set = (name, key = name) => (value) => { filters[name] = value; setParameter(key, value); show(); };
  const values = (key) => [...new Set([...jobs.values()].map((job) => job[key] || "none"))].sort();
  const search = el("input", { type: "search", value: filters.q, placeholder: "name, user or node", oninput: () => set("q")(search.value) });
  const runs = experiments.flatMap((experiment) => experiment.runs);
  const run = (each) => [each.id, `${experiments.length > 1 ? `${each.experiment}: ` : ""}${runName(each)}`];
  const options = (key) => [["", "all"], ...values(key).map((value) => [value, value])];
  form.addEventListener("submit", (event) => event.preventDefault());
  fill(form, el("label", {}, "Search", search),
    choice("Phase", [["", "all"], ...PHASES.map((each) => [each, each])], filters.phase, set("phase")),
    choice("Policy", options("policy"), filters.policy, set("policy")),
    state.cluster.clock === "wall" ? choice("Namespace", options("namespace"), filters.namespace, set("namespace", "in")) : null,
    runs.length ? choice("Run", [["all", "all"], ...runs.map(run)], filters.run || "all", set("run")) : null);
}

async function load() {
  const before = new Set(jobs.keys());
  await allJobs({ fields: FIELDS }, (items) => {
    for (const job of items) { jobs.set(job.uid, job); before.delete(job.uid); }
    show();
  });
  for (const uid of before) jobs.delete(uid);
  if (before.size) show();
}

async function page(state) {
  const { clock } = state.cluster;
  grid = new Grid(columns(clock), { name: "Jobs", sort: "submitted_s", descending: clock === "wall", nothing: "No job matches.",
    opened: (job) => location.assign(`/job?uid=${encodeURIComponent(job.uid)}`) });
  fill(byId("jobs"), grid.element);
  const [{ items }] = await Promise.all([get("/experiments"), load()]);
  if (clock === "emulated") filters.run ||= observedFirst(items.flatMap((each) => each.runs))?.id ?? "";
  filterForm(state, items);
  show();
  byId("jobs").dataset.shown = String(Math.round(performance.now())); // for tests and benchmarks
  performance.mark("jobs-shown");
}

const refresh = calmly(show, 500);
const reload = calmly(() => load().then(fine, trouble), 1000);
framed(page, (kind, data) => {
  if (kind === "reset") reload();
  else if (kind === "job" && data.gone) { jobs.delete(data.uid); refresh(); }
  else if (kind === "job") { jobs.set(data.uid, data); refresh(); }
});
