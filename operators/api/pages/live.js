// What changes, while it does. The browser connects again by itself and says which event it saw last; after a while it doesn't,
// so a stream that was closed for good is opened anew.

import { address } from "./api.js";

const AGAIN_MS = 5000;
const KINDS = ["job", "device", "node", "reset"];

export function follow(told, state = () => {}) {
  let source = null;
  const open = () => {
    source = new EventSource(address("/events"));
    source.addEventListener("open", () => state("live"));
    source.addEventListener("error", () => {
      state("away");
      if (source.readyState === EventSource.CLOSED) setTimeout(open, AGAIN_MS);
    });
    for (const kind of KINDS) {
      source.addEventListener(kind, (event) => told(kind, JSON.parse(event.data)));
    }
  };
  open();
  addEventListener("pagehide", () => source.close());
  addEventListener("pageshow", (event) => { if (event.persisted) open(); });
}

// Calls `work` at most every `ms`, and once more after the last call.
export function calmly(work, ms) {
  let waiting = null;
  return () => {
    waiting ??= setTimeout(() => { waiting = null; work(); }, ms);
  };
}
