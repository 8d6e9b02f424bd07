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
export function chosen(state, experiments, show) {
  const runs = experiments.flatMap((experiment) => experiment.runs);
  if (state.cluster.clock === "emulated") {
    const named = experiments.length > 1;
    const options = runs.map((run) => [run.id, `${named ? `${run.experiment}: ` : ""}${runName(run)}`]);
    const wanted = parameter("run");
    const first = runs.some((run) => run.id === wanted) ? wanted : observedFirst(runs)?.id ?? "";
    if (options.length) {
      fill(byId("choice"), choice("Run", options, first, (id) => { setParameter("run", id); show(() => ({ run: id })); }));
    }
    return show(() => ({ run: first }));
  }
  const window = (value) => () => (value === "all" ? {} : { since_s: nowOf(state) - Number(value) });
  const wanted = WINDOWS.some(([value]) => value === parameter("window")) ? parameter("window") : "3600";
  fill(byId("choice"), choice("Time", WINDOWS, wanted, (value) => { setParameter("window", value); show(window(value)); }));
  return show(window(wanted));
}
