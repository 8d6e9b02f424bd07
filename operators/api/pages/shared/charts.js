// Charts by plotly.js, which is loaded when the first one is drawn and is served in the folder above this file.

import { el, fill } from "./dom.js";

export const COLOURS = ["#3478b8", "#d0782a", "#2b9272", "#b9528a", "#7c66c4", "#85832c", "#c2493d", "#2f93a8"];
export const JOB_COLOURS = ["#4f81ab", "#6c9a5b", "#a8794a", "#7d74ad", "#3f918a", "#a3667f", "#85853f", "#6d7f95", "#5b6fae", "#9a6452", "#4d8a66", "#8f6aa0"];
const CONFIG = { responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]] };

const NARROW = 640;

const drawn = new Map();
let loading = null;

export function library() {
  loading ??= new Promise((resolve, reject) => {
    const source = new URL("../plotly.min.js", import.meta.url).href;
    document.head.append(el("script", { src: source, onload: () => resolve(globalThis.Plotly),
      onerror: () => reject(new Error("The charts can't be loaded; load the page again, or install the package plotly.")) }));
  });
  return loading;
}

// plotly reads a little HTML in labels; this makes any text show as itself.
export const label = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

function colour(name) {
  const probe = el("span", { class: "probe" });
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function themed(layout) {
  const axis = { gridcolor: colour("--grid"), linecolor: colour("--line"), zerolinecolor: colour("--line"), automargin: true };
  const result = {
    ...layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: colour("--text") },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--muted"), activecolor: colour("--text") },
    hoverlabel: { align: "left", bgcolor: colour("--panel"), bordercolor: colour("--muted"), font: { color: colour("--text") } },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    margin: { l: 50, r: 16, t: 30, b: 44, ...layout.margin },
  };
  for (const key of Object.keys(layout).filter((name) => /^[xy]axis\d*$/.test(name))) result[key] = { ...axis, ...layout[key] };
  return result;
}

// figure: {data, layout, says}: `says` is what a reader who doesn't see the chart is told. clicked(customdata) on a point.
export async function draw(place, figure, clicked = null) {
  const plotly = await library();
  if (!drawn.has(place)) fill(place);
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", figure.says);
  await plotly.react(place, figure.data, themed(figure.layout), { ...CONFIG, displayModeBar: innerWidth < NARROW ? false : "hover" });
  if (!drawn.has(place) && clicked) place.on("plotly_click", (event) => clicked(event.points[0]));
  drawn.set(place, figure);
}

export function empty(place, text) {
  if (drawn.delete(place)) globalThis.Plotly.purge(place);
  place.removeAttribute("role");
  place.removeAttribute("aria-label");
  fill(place, el("p", { class: "empty" }, text));
}

function again() {
  for (const [place, figure] of drawn) globalThis.Plotly.react(place, figure.data, themed(figure.layout), { ...CONFIG, displayModeBar: innerWidth < NARROW ? false : "hover" });
}
addEventListener("themechange", again);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);

// What to call the unit of an axis up to here, and what seconds are in it.
export function scaled(longest) {
  const [unit, size] = longest > 8 * 86400 ? ["days", 86400] : longest > 7200 ? ["h", 3600] : ["s", 1];
  return { unit, of: (value) => value / size };
}

// The x axis of a source's clock: dates, or seconds since the run's start; `of` turns seconds into its values.
export function timeAxis(clock, since, until) {
  const narrow = innerWidth < NARROW;
  const base = { nticks: narrow ? 4 : 10 };
  if (clock === "wall") {
    const local = (value) => new Date(value * 1000 - new Date(value * 1000).getTimezoneOffset() * 60000).toISOString().slice(0, -1);
    return { of: local, unit: "", axis: { ...base, type: "date", range: [local(since), local(until)] } };
  }
  const { unit, of } = scaled(until - since);
  return { of, unit, axis: { ...base, range: [of(since), of(until) || 1], title: { text: narrow ? unit : `emulated time since the run's start (${unit})` } } };
}
