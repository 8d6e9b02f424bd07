// The stream of events. After a lost connection the browser reconnects by itself and names the last event that it saw; a stream that
// the server refused is opened again after AGAIN_MS. A hidden page has no stream: browsers open at most six per site, for all tabs.

import { address } from "./api.js";

const AGAIN_MS = 5000;
const KINDS = ["job", "device", "node", "reset"];

// told(kind, data) for each event after the one with the id `after`; state("live" or "away").
export function follow(told, after, state = () => {}) {
  let source = null;
  let last = after;
  const close = () => { source?.close(); source = null; };
  const open = () => {
    if (source || document.hidden) return;
    const own = new EventSource(address("/events", { after: last }));
    source = own;
    own.addEventListener("open", () => state("live"));
    own.addEventListener("error", () => {
      state("away");
      if (own.readyState === EventSource.CLOSED && source === own) {
        close();
        setTimeout(open, AGAIN_MS);
      }
    });
    for (const kind of KINDS) {
      own.addEventListener(kind, (event) => {
        last = event.lastEventId;
        told(kind, JSON.parse(event.data));
      });
    }
  };
  open();
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
}

// Calls `work` at most every `ms`, and once more after the last call.
export function calmly(work, ms) {
  let waiting = null;
  return () => {
    waiting ??= setTimeout(() => { waiting = null; work(); }, ms);
  };
}
