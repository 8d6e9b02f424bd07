// A Gantt chart: which job held which device when. Jobs that share a device are drawn in lanes below each other.

import { JOB_COLOURS, label, timeAxis } from "./charts.js";
import { moment } from "./format.js";

const ROW_PX = 24;
const MOST_LABELLED = 300;

function lanes(spans, now) {
  const free = [];
  return spans.map((span) => {
    let lane = free.findIndex((end) => end <= span.from_s);
    if (lane < 0) lane = free.push(0) - 1;
    free[lane] = span.to_s ?? now;
    return { span, lane };
  });
}

function placed(occupancy, now) {
  const byDevice = new Map(occupancy.devices.map((id) => [id, []]));
  for (const span of occupancy.spans) {
    if (!byDevice.has(span.device)) byDevice.set(span.device, []);
    byDevice.get(span.device).push(span);
  }
  let top = 0;
  return [...byDevice].map(([device, spans]) => {
    const bars = lanes(spans, now);
    const count = 1 + Math.max(0, ...bars.map((bar) => bar.lane));
    const height = Math.min(4, 1 + (count - 1) * 0.6);
    const row = { device, bars, count, top, height };
    top += height;
    return row;
  });
}

function colourOf(uid) {
  let sum = 0;
  for (const sign of uid) sum = (sum * 31 + sign.codePointAt(0)) >>> 0;
  return JOB_COLOURS[sum % JOB_COLOURS.length];
}

export function ganttFigure(occupancy, clock, now) {
  const { of, axis } = timeAxis(clock, occupancy.since_s, occupancy.until_s);
  const rows = placed(occupancy, now);
  const bars = rows.flatMap((row) => row.bars.map(({ span, lane }) => {
    const height = (row.height * 0.86) / row.count;
    const middle = row.top + row.height / 2 + (lane - (row.count - 1) / 2) * height;
    return { span, height, middle };
  }));
  const end = (span) => span.to_s ?? Math.max(now, span.from_s);
  const length = ({ span }) => (clock === "wall" ? (end(span) - span.from_s) * 1000 : of(end(span)) - of(span.from_s));
  const bottom = rows.length ? rows.at(-1).top + rows.at(-1).height : 1;
  const named = bars.length <= MOST_LABELLED;
  return {
    says: `${bars.length} spans on ${rows.length} devices; the same is below as a table`,
    data: [{
      type: "bar", orientation: "h", y: bars.map((bar) => bar.middle), width: bars.map((bar) => bar.height),
      base: bars.map(({ span }) => of(span.from_s)), x: bars.map(length), customdata: bars.map(({ span }) => span.job),
      hovertext: bars.map(({ span }) => `<b>${label(span.name)}</b><br>${label(span.device)}<br>${moment(clock, span.from_s)} – ${span.to_s === null ? "now" : moment(clock, span.to_s)}${span.exact ? "" : "<br>its stops in between aren't known"}`),
      hovertemplate: "%{hovertext}<extra></extra>",
      marker: { color: bars.map(({ span }) => colourOf(span.name)), opacity: bars.map(({ span }) => (span.exact ? 1 : 0.55)), line: { width: 1, color: "rgba(16,20,24,0.45)" } },
      ...(named ? { text: bars.map(({ span }) => label(span.name)), textposition: "inside", insidetextanchor: "middle", textangle: 0, constraintext: "inside", insidetextfont: { color: "#ffffff", size: 10 } } : {}),
    }],
    layout: {
      height: Math.round(90 + Math.max(2, bottom) * ROW_PX), bargap: 0, barmode: "overlay", showlegend: false, hovermode: "closest",
      uniformtext: { mode: "hide", minsize: 9 }, xaxis: axis,
      yaxis: { range: [bottom, 0], tickmode: "array", tickvals: rows.map((row) => row.top + row.height / 2),
        ticktext: rows.map((row) => label(row.device)), showgrid: false, zeroline: false, fixedrange: true },
    },
  };
}
