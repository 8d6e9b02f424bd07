// Nodes and devices: what each is, who holds it, and who held it when.

import { get } from "./shared/api.js";
import { draw, empty } from "./shared/charts.js";
import { chosen } from "./shared/choose.js";
import { byId, el, fill, table } from "./shared/dom.js";
import { bytes, count, cpus, moment, share } from "./shared/format.js";
import { framed, nowOf, trouble } from "./shared/frame.js";
import { ganttFigure } from "./shared/gantt.js";
import { calmly } from "./shared/live.js";

const MOST_ROWS = 500;
let show = async () => {};
const jobHref = (uid) => `/job?uid=${encodeURIComponent(uid)}`;

function nodesTable(nodes, clock) {
  const name = { title: "node", cell: (node) => node.name, wrap: true };
  const used = { title: "GPUs that were used", number: true, cell: (node) => count(node.devices) };
  if (clock === "emulated") return table([name, used], nodes, { nothing: "No job has held anything." });
  return table([
    name,
    { title: "ready", cell: (node) => (node.ready ? "yes" : "no") },
    { title: "pool", cell: (node) => node.pool || "–", less: true },
    { title: "GPU type", cell: (node) => node.gpu_types.join(", ") || "–", less: true },
    { title: "GPUs", number: true, cell: (node) => count(node.devices) },
    { title: "held", number: true, cell: (node) => count(node.held) },
    { title: "unhealthy", number: true, cell: (node) => count(node.unhealthy) },
    { title: "CPUs", number: true, less: true, cell: (node) => cpus(node.cpu_milli) },
    { title: "memory", number: true, less: true, cell: (node) => bytes(node.memory_bytes) },
  ], nodes, { nothing: "There is no node with emulated devices. An EmuGPUPool makes them: kubectl get emugpupools" });
}

function devicesTable(devices, names) {
  const shown = devices.slice(0, MOST_ROWS);
  const holder = (device) => {
    if (!device.held) return "free";
    if (!device.holders.length) return "held";
    return device.holders.map((uid, index) => [index ? ", " : "", el("a", { href: jobHref(uid) }, names.get(uid) ?? uid)]).flat().reduce((all, each) => { all.append(each); return all; }, el("span"));
  };
  return table([
    { title: "device", cell: (device) => device.id, wrap: true },
    { title: "type", cell: (device) => device.gpu_type || (device.index === null ? "CPUs" : "–"), less: true },
    { title: "memory", number: true, less: true, cell: (device) => bytes(device.memory_bytes) },
    { title: "health", cell: (device) => (device.healthy ? "good" : `bad: ${device.reason || "no reason given"}`) },
    { title: "holder", cell: holder },
    { title: "UUID", less: true, cell: (device) => device.uuid || "–" },
  ], shown, { nothing: "There is no device.", caption: shown.length < devices.length ? `the first ${MOST_ROWS} of ${count(devices.length)}` : "" });
}

function spansTable(spans, clock) {
  const shown = spans.slice(0, MOST_ROWS);
  return table([
    { title: "device", cell: (span) => span.device },
    { title: "job", cell: (span) => el("a", { href: jobHref(span.job) }, span.name) },
    { title: "from", number: true, cell: (span) => moment(clock, span.from_s) },
    { title: "to", number: true, cell: (span) => (span.to_s === null ? "now" : moment(clock, span.to_s)) },
  ], shown, { nothing: "Nothing was held.", caption: shown.length < spans.length ? `the first ${MOST_ROWS} of ${count(spans.length)}` : "" });
}

async function occupied(state, parameters) {
  const { clock } = state.cluster;
  const found = await get("/occupancy", parameters);
  const inexact = found.spans.some((span) => !span.exact) ? " Pale bars: when the job was stopped in between isn't known." : "";
  const left = found.left_out ? ` Only the ${count(found.spans.length)} longest spans are drawn, ${count(found.left_out)} are not.` : "";
  byId("occupancy-note").textContent = `GPUs were held ${share(found.held_share)} of this time. A click on a bar opens the job.${inexact}${left}`;
  fill(byId("spans"), spansTable(found.spans, clock));
  if (!found.devices.length) { empty(byId("occupancy"), "There is no device to show."); return; }
  const now = clock === "wall" ? nowOf(state) : found.until_s;
  await draw(byId("occupancy"), ganttFigure(found, clock, now), (point) => location.assign(jobHref(point.customdata)));
}

async function page(state) {
  byId("devices-section").hidden = state.cluster.clock === "emulated"; // they are gone; what they were isn't told
  const { items } = await get("/experiments");
  let parameters = () => ({});
  show = async () => {
    try {
      const [nodes, devices, holding] = await Promise.all([get("/nodes"), get("/devices"), get("/jobs", { phase: ["Running", "Starting"], fields: ["name"], limit: 10000 })]);
      const names = new Map(holding.items.map((job) => [job.uid, job.name]));
      fill(byId("nodes"), nodesTable(nodes.items, state.cluster.clock));
      fill(byId("devices"), devicesTable(devices.items, names));
      await occupied(state, parameters());
    } catch (error) { trouble(error); }
  };
  await chosen(state, items, (wanted) => { parameters = wanted; return show(); });
}

const refresh = calmly(() => show(), 3000);
framed(page, refresh);
