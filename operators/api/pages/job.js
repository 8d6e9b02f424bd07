// One job: its figures, its steps over time, its stays on devices, what Kubernetes says of it.

import { get, send } from "./shared/api.js";
import { COLOURS, draw, empty, timeAxis } from "./shared/charts.js";
import { parameter } from "./shared/choose.js";
import { byId, el, fill, phase, table } from "./shared/dom.js";
import { MISSING, count, moment, percent, progress, ratio, runName, seconds } from "./shared/format.js";
import { fine, framed, nowOf, trouble } from "./shared/frame.js";
import { calmly } from "./shared/live.js";

const uid = parameter("uid");
const path = `/jobs/${encodeURIComponent(uid)}`;
let show = async () => {};

const fact = (name, value) => (value === "" || value === null || value === MISSING ? null : [el("dt", {}, name), el("dd", {}, value)]);
const pair = (items) => items.filter(Boolean).map(([name, value]) => el("div", {}, name, value));

function facts(state, job) {
  const { clock } = state.cluster;
  return el("dl", { class: "facts" }, pair([
    fact("phase", phase(job.phase)), fact("reason", job.reason), fact("namespace", job.namespace), fact("tenant", job.tenant),
    fact("kind", job.kind === "EmuJob" ? null : job.kind), fact("policy", job.policy), fact("experiment", job.experiment),
    job.cluster === "kubernetes" ? null : fact("run", runName(job)),
    fact("GPUs", count(job.gpus)), fact(job.unit, progress(job)), fact("devices", job.devices.join(", ") || job.nodes.join(", ")),
    fact("submitted", moment(clock, job.submitted_s)), fact("started", moment(clock, job.started_s)), fact("ended", moment(clock, job.finished_s)),
    fact("JCT", seconds(job.jct_s)), fact(`predicted JCT${job.predicted_by ? ` (${job.predicted_by})` : ""}`, seconds(job.predicted_jct_s)),
    fact("error of the prediction", percent(job.error)), fact("queueing delay", seconds(job.queueing_delay_s)),
    fact("service time", seconds(job.service_s)), fact("slowdown", ratio(job.slowdown)), fact("finish-time fairness", ratio(job.fairness)),
    fact("preemptions", count(job.preemptions)),
  ]));
}

function holding(state, job) {
  if (!state.cluster.writable || job.deleted || job.phase === "Succeeded" || job.phase === "Failed") return null;
  const verb = job.suspended ? "resume" : "suspend";
  const button = el("button", { type: "button", onclick: async () => {
    button.disabled = true;
    try {
      await send("POST", `${path}/${verb}`);
      fine();
      setTimeout(show, 600);
    } catch (error) { trouble(error); button.disabled = false; }
  } }, job.suspended ? "Resume" : "Suspend");
  return el("p", {}, button);
}

// Steps are in the results store only, which may be unavailable while the rest is there.
const stepsOrProblem = () => get(`${path}/steps`).catch((error) => {
  if (error.code !== "store-away") throw error;
  return { progress: [], missing: error.message };
});

async function steps(state, job, { progress: progressed, missing }) {
  const place = byId("steps");
  if (missing) {
    empty(place, missing);
    return;
  }
  if (!progressed.length) {
    empty(place, state.cluster.clock === "emulated" ? "A comparison's files have no single steps." : "No steps have been reported yet.");
    return;
  }
  const since = job.submitted_s;
  const until = job.finished_s ?? nowOf(state);
  const { of, axis } = timeAxis(state.cluster.clock, since, Math.max(until, since + 1e-3));
  const x = [];
  const y = [];
  for (const each of progressed) {
    x.push(of(each.from_s), of(each.to_s), null);
    y.push(each.from_step, each.to_step, null);
  }
  byId("steps-note").textContent = `${count(progressed.length)} reports; flat or missing parts are waiting.`;
  await draw(place, {
    says: `${count(progressed.at(-1).to_step)} of ${count(job.steps)} ${job.unit} are done`,
    data: [{ type: "scatter", mode: "lines+markers", x, y, line: { color: COLOURS[0], width: 2.5 }, marker: { size: 5 }, hovertemplate: `%{y} ${job.unit}<extra></extra>` }],
    layout: { height: 260, xaxis: axis, yaxis: { title: { text: `${job.unit} done` }, range: [0, (job.steps ?? progressed.at(-1).to_step) * 1.04] }, showlegend: false },
  });
}

function runsTable(runs, unit, clock, now) {
  const steps = (run) => (run.from_step === null ? MISSING : run.to_step === null ? `from ${count(run.from_step)}` : `${count(run.from_step)} – ${count(run.to_step)}`);
  return table([
    { title: "node", cell: (run) => run.node, wrap: true },
    { title: "devices", cell: (run) => run.devices.join(", ") || MISSING, wrap: true },
    { title: "from", number: true, cell: (run) => moment(clock, run.from_s) },
    { title: "to", number: true, cell: (run) => (run.to_s === null ? "now" : moment(clock, run.to_s)) },
    { title: "lasted", number: true, less: true, cell: (run) => seconds((run.to_s ?? now) - run.from_s) },
    { title: unit, number: true, cell: steps },
    { title: "ended", cell: (run) => run.ended || "running" },
  ], runs, { nothing: "The job has not held a device yet." });
}

function story(found, clock) {
  const conditions = found.conditions.length ? table([
    { title: "condition", cell: (each) => each.type }, { title: "is", cell: (each) => each.status }, { title: "since", cell: (each) => moment(clock, each.since_s), less: true },
    { title: "reason", cell: (each) => each.reason }, { title: "message", cell: (each) => each.message, wrap: true },
  ], found.conditions, { nothing: "" }) : null;
  const notes = found.notes.length ? el("ul", { class: "notes" }, found.notes.map((note) => el("li", {}, note))) : null;
  return conditions || notes ? [conditions ? el("div", { class: "scroll" }, conditions) : null, notes] : [el("p", { class: "empty" }, "No conditions and no notes.")];
}

async function page(state) {
  if (!uid) throw new Error("No job is named. Choose one on the page Jobs.");
  show = async () => {
    try {
      const [found, told] = await Promise.all([get(path), stepsOrProblem()]);
      byId("title").textContent = found.job.name;
      document.title = `${found.job.name} – emugpu`;
      fill(byId("facts"), facts(state, found.job), holding(state, found.job));
      fill(byId("runs"), runsTable(found.runs, found.job.unit, state.cluster.clock, nowOf(state)));
      fill(byId("story"), story(found, state.cluster.clock));
      await steps(state, found.job, told);
    } catch (error) { trouble(error); }
  };
  await show();
}

const refresh = calmly(() => show(), 1000);
framed(page, (kind, data) => { if (kind === "reset" || data.uid === uid) refresh(); });
