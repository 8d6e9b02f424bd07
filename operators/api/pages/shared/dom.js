// Elements from values. Texts are only ever texts: nothing that a job is called becomes markup.

export const byId = (id) => document.getElementById(id);

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined).map((child) =>
    child instanceof Node ? child : String(child)));
  return made;
}

export function fill(place, ...children) {
  place.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
}

// columns: {title, cell(row), number?, wrap?, less?}; an empty table says `nothing` instead.
export function table(columns, rows, { nothing, caption = "", rowClass = () => null }) {
  if (!rows.length) return el("p", { class: "empty" }, nothing);
  const look = (column) => [column.number && "number", column.wrap && "wrap", column.less && "less"].filter(Boolean).join(" ") || null;
  return el("table", {},
    caption ? el("caption", { class: "muted" }, caption) : null,
    el("thead", {}, el("tr", {}, columns.map((column) => el("th", { scope: "col", class: look(column) }, column.title)))),
    el("tbody", {}, rows.map((row) => el("tr", { class: rowClass(row) },
      columns.map((column) => el("td", { class: look(column) }, column.cell(row)))))));
}

export function choice(label, options, value, changed) {
  const select = el("select", { onchange: () => changed(select.value) },
    options.map(([key, text]) => el("option", { value: key, selected: key === value }, text)));
  return el("label", {}, label, select);
}

export const phase = (name) => el("span", { class: "phase", "data-phase": name }, name);

export const jobLink = (job, attributes = {}) =>
  el("a", { href: `/job?uid=${encodeURIComponent(job.uid)}`, ...attributes }, job.name);
