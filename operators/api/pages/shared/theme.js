"use strict";
// Before the first paint, so that a page doesn't flash in the other colours; frame.js has the switch.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("emugpu-theme"); } catch { /* storage is off: the system's choice holds */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
