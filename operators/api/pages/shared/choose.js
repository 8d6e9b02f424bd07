// Which run, or which window of time, a page shows. It is in the page's address, so a link shows the same.

import { byId, choice, fill } from "./dom.js";
import { runName } from "./format.js";
import { nowOf } from "./frame.js";

const WINDOWS = [["900", "last 15 minutes"], ["3600", "last hour"], ["21600", "last 6 hours"], ["86400", "last 24 hours"], ["all", "everything"]];

export const parameter = (name) => new URLSearchParams(location.search).get(name) ?? "";

export function setParameter(name, value) {
  const url = new URL(location.href);
  if (value) url.searchParams.set(name, value);
  else url.searchParams.delete(name);
  history.replaceState(null, "", url);
}

export function observedFirst(runs) {
  return runs.find((run) => run.cluster !== "simulated") ?? runs[0];
}

// Calls `show(parameters)` now and at every change; parameters() are those of /queue and /occupancy at this moment.
// On an emulated clock one run is shown. On a wall clock all jobs in a window of time are, or one run as a whole.
export function chosen(state, experiments, show) {
  const wall = state.cluster.clock === "wall";
  const runs = experiments.flatMap((experiment) => experiment.runs);
  const title = (run) => `${experiments.length > 1 ? `${run.experiment}: ` : ""}${runName(run)}`;
  const options = [...(wall ? [["", "all jobs"]] : []), ...runs.map((run) => [run.id, title(run)])];
  const named = runs.some((run) => run.id === parameter("run")) ? parameter("run") : "";
  let run = wall ? named : named || (observedFirst(runs)?.id ?? "");
  let window = WINDOWS.some(([value]) => value === parameter("window")) ? parameter("window") : "3600";
  const parameters = () => (run || window === "all" || !wall ? (run ? { run } : {}) : { since_s: nowOf(state) - Number(window) });
  const choices = () => fill(byId("choice"),
    runs.length ? choice("Run", options, run, (id) => { run = id; setParameter("run", id); choices(); show(parameters); }) : null,
    wall && !run ? choice("Time", WINDOWS, window, (value) => { window = value; setParameter("window", value); show(parameters); }) : null);
  choices();
  return show(parameters);
}
