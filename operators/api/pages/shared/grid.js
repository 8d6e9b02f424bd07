// A table of any length: only the rows in sight are in the document. One row is in the order of Tab; arrows move it.

import { el, fill } from "./dom.js";

const ROW_PX = 34;
const BEYOND = 12;

const lacks = (value) => value === null || value === undefined || value === "";

function compared(a, b) {
  if (lacks(a) || lacks(b)) return lacks(a) - lacks(b);
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

export class Grid {
  // Rows that are the same in the column that is sorted by are in order of the first one. columns: {key, title, cell(row), value?(row), number?, less?, hint?(row)}; opened(row) on Enter; name: what the table is of.
  constructor(columns, { name, sort, descending, opened, nothing }) {
    this.columns = columns;
    this.sort = sort;
    this.descending = descending;
    this.opened = opened;
    this.nothing = nothing;
    this.rows = [];
    this.active = 0;
    this.sorted = () => {};
    this.body = el("tbody", { onkeydown: (event) => this.#key(event), onfocusin: (event) => this.#focused(event) });
    this.heads = columns.map((column) => this.#head(column));
    this.table = el("table", { role: "grid", "aria-label": name }, el("thead", {}, el("tr", { "aria-rowindex": 1 }, this.heads)), this.body);
    this.element = el("div", { class: "grid", onscroll: () => this.#draw() }, this.table);
    new ResizeObserver(() => this.#draw()).observe(this.element);
  }

  show(rows) {
    const column = this.columns.find((each) => each.key === this.sort);
    const value = column.value ?? ((row) => row[column.key]);
    const keyed = rows.map((row) => [value(row), row]);
    const way = this.descending ? -1 : 1;
    const first = this.columns[0].key;
    keyed.sort(([a, one], [b, other]) => (lacks(a) || lacks(b) ? compared(a, b) : way * compared(a, b)) || compared(one[first], other[first]));
    this.rows = keyed.map(([, row]) => row);
    this.active = Math.min(this.active, Math.max(0, this.rows.length - 1));
    this.table.setAttribute("aria-rowcount", String(this.rows.length + 1));
    this.#draw();
  }

  #head(column) {
    const button = el("button", { type: "button", onclick: () => {
      this.descending = this.sort === column.key ? !this.descending : Boolean(column.number);
      this.sort = column.key;
      this.#marks();
      this.show(this.rows);
      this.element.scrollTop = 0;
      this.sorted(this.sort, this.descending);
    } }, el("span", { class: "order" }, column.title));
    const head = el("th", { scope: "col", class: this.#look(column) }, button);
    head.dataset.key = column.key;
    if (column.key === this.sort) head.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
    return head;
  }

  #marks() {
    for (const head of this.heads) {
      if (head.dataset.key === this.sort) head.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  }

  #look(column) {
    return [column.number && "number", column.less && "less"].filter(Boolean).join(" ") || null;
  }

  #draw() {
    if (!this.rows.length) {
      fill(this.body, el("tr", {}, el("td", { colspan: this.columns.length, class: "empty" }, this.nothing)));
      return;
    }
    const height = this.element.clientHeight || 600;
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW_PX) - BEYOND);
    const last = Math.min(this.rows.length, Math.ceil((this.element.scrollTop + height) / ROW_PX) + BEYOND);
    const focused = this.body.contains(document.activeElement);
    if (this.active < first || this.active >= last) this.active = Math.min(last - 1, Math.max(first, this.active < first ? first + BEYOND : last - BEYOND - 1));
    const rows = [];
    for (let index = first; index < last; index += 1) rows.push(this.#row(index));
    fill(this.body, this.#space(first), rows, this.#space(this.rows.length - last));
    if (focused) rows[this.active - first].focus({ preventScroll: true });
  }

  #row(index) {
    const row = this.rows[index];
    const made = el("tr", { "aria-rowindex": index + 2, tabindex: index === this.active ? 0 : -1 },
      this.columns.map((column) => el("td", { class: this.#look(column), title: column.hint ? column.hint(row) : null }, column.cell(row))));
    made.dataset.index = String(index);
    return made;
  }

  #space(count) {
    if (count <= 0) return null;
    const cell = el("td", { colspan: this.columns.length });
    cell.style.height = `${count * ROW_PX}px`;
    return el("tr", { class: "space", "aria-hidden": "true" }, cell);
  }

  #focused(event) {
    const row = event.target.closest("tr[data-index]");
    if (!row || Number(row.dataset.index) === this.active) return;
    this.body.querySelector("tr[tabindex='0']")?.setAttribute("tabindex", "-1");
    this.active = Number(row.dataset.index);
    row.setAttribute("tabindex", "0");
  }

  #key(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / ROW_PX) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter" && this.rows[this.active] && !event.target.closest("a")) this.opened(this.rows[this.active]);
    if (!(event.key in steps) || !this.rows.length || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.active = Math.min(this.rows.length - 1, Math.max(0, this.active + steps[event.key]));
    this.#reveal();
    this.#draw();
    this.body.querySelector("tr[tabindex='0']")?.focus({ preventScroll: true });
  }

  #reveal() {
    const head = this.table.tHead.offsetHeight;
    const top = this.active * ROW_PX;
    const view = this.element;
    if (top < view.scrollTop) view.scrollTop = top;
    else if (top + ROW_PX + head > view.scrollTop + view.clientHeight) view.scrollTop = top + ROW_PX + head - view.clientHeight;
  }
}
