"use strict";
(() => {
  const page = JSON.parse(document.getElementById("report-data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  // The list of buttons is explicit, because plotly.js would add one that uploads the chart to plotly's site.
  const config = { responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
                   modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]] };

  function themed(layout) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { gridcolor: colour("--grid"), linecolor: colour("--line"), zerolinecolor: colour("--line"),
                   automargin: true, separatethousands: true, exponentformat: "none" };
    const result = {
      ...layout,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--muted"), activecolor: colour("--text") },
      font: { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: colour("--text") },
      hoverlabel: { align: "left", bgcolor: colour("--panel"), bordercolor: colour("--muted"), font: { color: colour("--text") } },
    };
    for (const key of Object.keys(layout).filter((name) => /^[xy]axis\d*$/.test(name))) {
      result[key] = { ...axis, ...layout[key] };
    }
    return result;
  }

  function outlined(trace) {
    if (trace.type !== "bar") return trace;
    const color = getComputedStyle(document.documentElement).getPropertyValue("--panel").trim();
    return { ...trace, marker: { ...trace.marker, line: { ...trace.marker.line, color } } };
  }

  const drawn = new Map();
  function draw(id, figure) {
    drawn.set(id, figure);
    Plotly.react(id, figure.data.map(outlined), themed(figure.layout), config);
  }

  function fill(select, texts) {
    select.replaceChildren(...texts.map((text, index) => new Option(text, String(index))));
  }

  function setUpGantt() {
    const policy = document.getElementById("gantt-policy");
    const cluster = document.getElementById("gantt-cluster");
    const caption = document.getElementById("gantt-caption");
    if (!policy) return;
    const show = () => {
      const entry = page.gantt[policy.value].runs[cluster.value];
      caption.textContent = entry.caption;
      draw("gantt", entry.figure);
    };
    const choosePolicy = () => {
      const before = cluster.value || "0";
      const runs = page.gantt[policy.value].runs;
      fill(cluster, runs.map((run) => run.name));
      cluster.value = Number(before) < runs.length ? before : "0";
      show();
    };
    fill(policy, page.gantt.map((entry) => entry.policy));
    policy.addEventListener("change", choosePolicy);
    cluster.addEventListener("change", show);
    choosePolicy();
  }

  for (const [id, figure] of Object.entries(page.charts)) draw(id, figure);
  setUpGantt();
  dark.addEventListener("change", () => drawn.forEach((figure, id) => draw(id, figure)));
})();
