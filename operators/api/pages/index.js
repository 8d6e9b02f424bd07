// Overview: present figures, queue and devices over time, running jobs and jobs that ended last.

import { get } from "./shared/api.js";
import { COLOURS, draw, empty, timeAxis } from "./shared/charts.js";
import { chosen } from "./shared/choose.js";
import { byId, el, fill, jobLink, phase, table } from "./shared/dom.js";
import { count, moment, percent, progress, seconds, share } from "./shared/format.js";
import { framed, trouble } from "./shared/frame.js";
import { calmly } from "./shared/live.js";

const SHOWN = 12;
const FIELDS = ["name", "phase", "policy", "gpus", "nodes", "steps", "steps_done", "started_s", "finished_s", "jct_s", "error", "namespace"];
let show = async () => {};

function tile(text, value, href) {
  const inside = [el("b", {}, value), el("span", {}, text)];
  return el("li", {}, href ? el("a", { class: "tile", href }, inside) : el("div", { class: "tile" }, inside));
}

function errorOfMean({ mean_predicted_jct_s: predicted, mean_jct_s: observed }) {
  return predicted !== null && observed ? (predicted - observed) / observed : null;
}

function tiles(state, summary, run, held) {
  const { jobs } = state;
  const many = (...phases) => phases.reduce((sum, each) => sum + (jobs[each] ?? 0), 0);
  const found = run || state.cluster.clock === "emulated"
    ? [tile("jobs", count(summary.jobs), "/jobs"), tile("finished", count(summary.finished)), tile("failed", count(summary.failed), "/jobs?phase=Failed"),
      tile("mean JCT", seconds(summary.mean_jct_s)), tile("median JCT", seconds(summary.quantiles_s["0.5"] ?? null)),
      tile("GPUs held", share(held)), run?.cluster === "simulated" ? null : tile("error of the prediction", percent(errorOfMean(summary)), "/experiments")]
    : [tile("running", count(many("Running", "Starting")), "/jobs?phase=Running"), tile("waiting", count(many("Queued", "Pending", "Preempted")), "/jobs?phase=Queued"),
      tile("finished", count(many("Succeeded")), "/jobs?phase=Succeeded"), tile("failed", count(many("Failed", "Rejected")), "/jobs?phase=Failed"),
      tile("devices held", `${count(state.held)} / ${count(state.devices)}`, "/nodes"), tile("mean JCT", seconds(summary.mean_jct_s)), tile("unhealthy devices", count(state.unhealthy), "/nodes")];
  fill(byId("tiles"), found);
}

async function load(state, queue) {
  const { of, axis } = timeAxis(state.cluster.clock, queue.since_s, queue.until_s);
  const line = (name, points, colour, more = {}) => ({ type: "scatter", mode: "lines", name, x: points.times_s.map(of), y: points.values, line: { shape: "hv", color: colour, width: 2 }, ...more });
  byId("load-note").textContent = `There are ${count(queue.devices)} GPUs.`;
  if (!queue.waiting.times_s.length) { empty(byId("load"), "No job was submitted in this time."); return; }
  const most = Math.max(...queue.waiting.values);
  await draw(byId("load"), {
    says: `At most ${most} jobs waited and ${Math.max(...queue.held.values)} of ${queue.devices} devices were held`,
    data: [line("jobs waiting", queue.waiting, COLOURS[1]), line("devices held", queue.held, COLOURS[0], { fill: "tozeroy", fillcolor: "rgba(52,120,184,0.18)" })],
    layout: { height: 300, xaxis: axis, yaxis: { rangemode: "tozero" }, hovermode: "x unified" },
  });
}

function lists(state, running, ended) {
  const { clock } = state.cluster;
  const name = { title: "job", cell: (job) => jobLink(job), wrap: true };
  fill(byId("running"), table([name, { title: "since", cell: (job) => moment(clock, job.started_s) }, { title: "progress", number: true, cell: progress },
    { title: "node", less: true, cell: (job) => job.nodes.join(", ") }], running.items,
  { nothing: "Nothing runs now.", caption: running.total > SHOWN ? `the newest ${SHOWN} of ${count(running.total)}` : "" }));
  fill(byId("ended"), table([name, { title: "phase", cell: (job) => phase(job.phase) }, { title: "JCT", number: true, cell: (job) => seconds(job.jct_s) },
    { title: "error", number: true, less: true, cell: (job) => percent(job.error) }], ended, { nothing: "No job has ended yet." }));
}

async function page(state) {
  byId("running-section").hidden = state.cluster.clock === "emulated"; // all of a comparison has ended
  const { items } = await get("/experiments");
  let parameters = () => ({});
  show = async () => {
    try {
      const asked = parameters();
      const filter = asked.run ? { run: asked.run } : {};
      const [queue, { items: [now] }, metrics] = await Promise.all([get("/queue", asked), get("/clusters"), get("/metrics-summary")]);
      const [recent, active] = await Promise.all([get("/jobs", { ...filter, order: "ended", fields: FIELDS, limit: SHOWN }),
        get("/jobs", { ...filter, order: "newest", phase: ["Running", "Starting"], fields: FIELDS, limit: SHOWN })]);
      const own = queue.run ? metrics.groups.find((group) => group.experiment === queue.run.experiment && group.policy === queue.run.policy && group.cluster === queue.run.cluster)?.summary ?? metrics.all : metrics.all;
      const held = queue.run ? (await get("/occupancy", asked)).held_share : null;
      tiles(now, own, queue.run, held);
      lists(state, active, recent.items.filter((job) => job.finished_s !== null));
      await load(now, queue);
    } catch (error) { trouble(error); }
  };
  await chosen(state, items, (wanted) => { parameters = wanted; return show(); });
}

const refresh = calmly(() => show(), 3000);
framed(page, refresh);
