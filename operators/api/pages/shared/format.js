// How figures are written for people, the same on every page.

export const MISSING = "–";
const two = (value) => String(value).padStart(2, "0");

export function seconds(value) {
  if (value === null || value === undefined) return MISSING;
  const size = Math.abs(value);
  if (size >= 86400) return `${Math.floor(size / 86400)} d ${Math.floor((size % 86400) / 3600)} h`;
  if (size >= 7200) return `${Math.floor(size / 3600)} h ${two(Math.floor((size % 3600) / 60))} min`;
  if (size >= 600) return `${Math.floor(size / 60)} min ${two(Math.floor(size % 60))} s`;
  const digits = size >= 100 || size === 0 ? 1 : size >= 1 ? 2 : 3;
  return `${value.toFixed(digits)} s`;
}

export function percent(fraction, signed = true) {
  if (fraction === null || fraction === undefined) return MISSING;
  const size = Math.abs(fraction) * 100;
  const text = size.toFixed(size < 10 ? 2 : size < 1000 ? 1 : 0);
  if (!signed || Number(text) === 0) return `${text}%`;
  return `${fraction > 0 ? "+" : "−"}${text}%`;
}

export const share = (fraction) =>
  fraction === null || fraction === undefined ? MISSING : `${(100 * fraction).toFixed(1)}%`;

export const count = (value) => (value === null || value === undefined ? MISSING : value.toLocaleString("en"));

export const ratio = (value) => (value === null || value === undefined ? MISSING : value.toFixed(2));

export function bytes(value) {
  return value === null || value === undefined ? MISSING : `${(value / 2 ** 30).toLocaleString("en", { maximumFractionDigits: 1 })} GiB`;
}

export const cpus = (milli) =>
  milli === null || milli === undefined ? MISSING : (milli / 1000).toLocaleString("en", { maximumFractionDigits: 3 });

// A moment on the source's clock: a time of day, or seconds since the run's start.
export function moment(clock, value) {
  if (value === null || value === undefined) return MISSING;
  if (clock === "emulated") return seconds(value);
  const date = new Date(value * 1000);
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  const today = new Date().toDateString() === date.toDateString();
  return today ? time : `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}`;
}

export const runName = (run) =>
  `${run.policy || "no policy"}, ${run.cluster === "simulated" ? "predicted" : `observed (${run.cluster}${run.repeat > 1 ? ` #${run.repeat}` : ""})`}`;

export const progress = (job) =>
  job.steps === null || job.steps === undefined ? MISSING : `${count(job.steps_done ?? 0)} / ${count(job.steps)}`;
