// Experiments: policies beside each other, predicted beside observed.

import { allJobs, get } from "./shared/api.js";
import { COLOURS, draw, empty, label, scaled } from "./shared/charts.js";
import { parameter, setParameter } from "./shared/choose.js";
import { byId, choice, el, fill, table } from "./shared/dom.js";
import { count, percent, seconds, share } from "./shared/format.js";
import { framed, trouble } from "./shared/frame.js";
import { calmly } from "./shared/live.js";

const LONG = 40;
const CALIBRATION = "calibration";
let show = async () => {};

const coloursOf = (runs) => new Map([...new Set(runs.map(({ run }) => run.policy))].map((policy, index) => [policy, COLOURS[index % COLOURS.length]]));

function relative(predicted, observed) {
  return predicted === null || !observed ? null : (predicted - observed) / observed;
}

// Per policy the prediction, each observation, and under it the errors; what was observed may carry its prediction itself.
function rowsOf(runs) {
  const policies = [...new Set(runs.map(({ run }) => run.policy))];
  return policies.flatMap((policy) => {
    const own = runs.filter(({ run }) => run.policy === policy);
    const predicted = own.find(({ run }) => run.cluster === "simulated");
    return own.flatMap((each) => {
      const row = { policy, kind: each === predicted ? "predicted" : `observed${each.run.repeat > 1 ? ` #${each.run.repeat}` : ""}`, ...each };
      if (each === predicted) return [row];
      const mean = predicted ? predicted.summary.mean_jct_s : each.summary.mean_predicted_jct_s;
      return mean === null ? [row] : [row, { policy, kind: "error", mean: relative(mean, each.summary.mean_jct_s), predicted, observed: each }];
    });
  });
}

// The runs to compare: the probes that measure the costs of an experiment in a cluster are a run of it, but no policy's.
function compared({ experiment, runs }) {
  const policies = runs.filter(({ run }) => run.policy !== CALIBRATION);
  return experiment.namespace === "" && policies.length ? policies : runs;
}

function figuresTable(runs) {
  const colours = coloursOf(runs);
  const rows = rowsOf(runs);
  const figure = (pick, write) => (row) => (row.kind === "error" ? (row.predicted ? percent(relative(pick(row.predicted), pick(row.observed))) : "") : write(pick(row)));
  const swatch = (policy) => { const made = el("span", { class: "swatch" }); made.style.background = colours.get(policy); return made; };
  const quantile = (name) => (row) => row.summary.quantiles_s[name] ?? null;
  return table([
    { title: "policy", cell: (row) => (row === rows.find((each) => each.policy === row.policy) ? el("span", { class: "named" }, swatch(row.policy), row.policy || "none") : ""), wrap: true },
    { title: "", cell: (row) => row.kind },
    { title: "mean JCT", number: true, cell: (row) => (row.kind === "error" ? percent(row.mean) : seconds(row.summary.mean_jct_s)) },
    { title: "median JCT", number: true, cell: figure(quantile("0.5"), seconds) },
    { title: "p95 JCT", number: true, cell: figure(quantile("0.95"), seconds) },
    { title: "makespan", number: true, less: true, cell: figure((row) => row.summary.makespan_s, seconds) },
    { title: "GPUs held", number: true, less: true, cell: figure((row) => row.held_share, share) },
    { title: "waited", number: true, less: true, cell: figure((row) => row.summary.mean_queueing_delay_s, seconds) },
    { title: "preemptions", number: true, less: true, cell: (row) => (row.kind === "error" ? "" : count(row.summary.preemptions)) },
    { title: "finished", number: true, cell: (row) => (row.kind === "error" ? "" : count(row.summary.finished)) },
    { title: "failed", number: true, less: true, cell: (row) => (row.kind === "error" ? "" : count(row.summary.failed)) },
  ], rows, { nothing: "No job of this experiment is known.", rowClass: (row) => (row.kind === "error" ? "error" : row.kind === "predicted" ? "predicted" : null) });
}

async function cdf(runs) {
  const colours = coloursOf(runs);
  const { unit, of } = scaled(Math.max(0, ...runs.map(({ summary }) => summary.jct_cdf.times_s.at(-1) ?? 0)));
  const trace = (policy, points, predicted) => ({
    type: "scatter", mode: "lines", name: label(policy || "none"), legendgroup: policy, showlegend: !predicted, x: points.times_s.map(of), y: points.values, opacity: predicted ? 1 : 0.45,
    line: { shape: "hv", color: colours.get(policy), ...(predicted ? { width: 1.6, dash: "5px,3px" } : { width: 4 }) },
    hovertemplate: `%{y:.1%} within %{x:.4~g} ${unit}<extra>${label(policy)}, ${predicted ? "predicted" : "observed"}</extra>`,
  });
  const observed = runs.filter(({ run }) => run.cluster !== "simulated");
  const simulated = runs.filter(({ run }) => run.cluster === "simulated");
  const own = observed.filter(({ run }) => !simulated.some((each) => each.run.policy === run.policy));
  const data = [...observed.map(({ run, summary }) => trace(run.policy, summary.jct_cdf, false)),
    ...simulated.map(({ run, summary }) => ({ ...trace(run.policy, summary.jct_cdf, true), showlegend: !observed.length })),
    ...own.map(({ run, summary }) => trace(run.policy, summary.predicted_cdf, true))].filter((each) => each.x.length);
  if (!data.length) { empty(byId("cdf"), "No job has finished yet."); return; }
  await draw(byId("cdf"), { says: `Distributions of completion times of ${colours.size} policies; the table above has their quantiles`, data,
    layout: { height: 380, xaxis: { title: { text: `JCT (${unit})` }, rangemode: "tozero" }, yaxis: { range: [0, 1.02], tickformat: ".0%" }, hovermode: "closest" } });
}

async function scatter(runs, jobs) {
  const colours = coloursOf(runs);
  const both = jobs.filter((job) => job.cluster !== "simulated" && job.jct_s !== null && job.predicted_jct_s !== null);
  if (!both.length) { empty(byId("scatter"), "No job was both predicted and observed."); return; }
  const longest = Math.max(...both.map((job) => Math.max(job.jct_s, job.predicted_jct_s)));
  const { unit, of } = scaled(longest);
  const most = of(longest);
  const data = [...colours].map(([policy, colour]) => {
    const own = both.filter((job) => job.policy === policy);
    return { type: "scatter", mode: "markers", name: label(policy || "none"), x: own.map((job) => of(job.jct_s)), y: own.map((job) => of(job.predicted_jct_s)), customdata: own.map((job) => job.uid),
      text: own.map((job) => label(job.name)), marker: { color: colour, size: 7, opacity: 0.7 }, hovertemplate: `<b>%{text}</b><br>predicted %{y:.4~g} ${unit}<br>observed %{x:.4~g} ${unit}<extra></extra>` };
  });
  await draw(byId("scatter"), { says: `${both.length} jobs, predicted against observed completion time; the page Jobs has each`, data,
    layout: { height: 420, xaxis: { title: { text: `observed JCT (${unit})` }, range: [0, most * 1.04] }, yaxis: { title: { text: `predicted JCT (${unit})` }, range: [0, most * 1.04] }, hovermode: "closest",
      shapes: [{ type: "line", x0: 0, y0: 0, x1: most, y1: most, line: { color: "#8a939c", width: 1, dash: "dot" } }] } },
  (point) => location.assign(`/job?uid=${encodeURIComponent(point.customdata)}`));
}

function metaOf(meta) {
  const long = ([, value]) => value.length > LONG;
  const entries = Object.entries(meta).sort((a, b) => long(a) - long(b));
  return entries.length ? el("dl", { class: "facts" }, entries.map(([name, value]) =>
    el("div", { class: long([name, value]) ? "long" : null }, el("dt", {}, name), el("dd", {}, value)))) : null;
}

async function page() {
  const { items } = await get("/experiments");
  if (!items.length) {
    for (const section of document.querySelectorAll("main section")) section.hidden = true;
    fill(byId("meta"), el("p", { class: "empty" }, "No experiment yet. EmuJobs with the label emugpu.dev/experiment make one, and so does emugpu compare --on kubernetes."));
    return;
  }
  let chosen = items.some((each) => each.id === parameter("id")) ? parameter("id") : items.at(-1).id;
  show = async () => {
    try {
      const found = await get(`/experiments/${encodeURIComponent(chosen)}`);
      fill(byId("meta"), metaOf(found.experiment.meta));
      const runs = compared(found);
      fill(byId("figures"), figuresTable(runs));
      const jobs = [];
      await allJobs({ experiment: chosen, fields: ["name", "policy", "cluster", "jct_s", "predicted_jct_s"] }, (some) => jobs.push(...some));
      await cdf(runs);
      await scatter(runs, jobs);
    } catch (error) { trouble(error); }
  };
  if (items.length > 1) fill(byId("choice"), choice("Experiment", items.map((each) => [each.id, each.id]), chosen, (id) => { chosen = id; setParameter("id", id); show(); }));
  await show();
}

const refresh = calmly(() => show(), 3000);
framed(page, refresh);
