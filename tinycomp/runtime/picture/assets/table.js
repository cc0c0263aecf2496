// A table of any length: sorted by its heads, filtered by a text, with only the rows in sight in the document.

const ROW = 26;

class Table {
  // columns: [{title, text: (row) => string, value: (row) => number or string, isFigure, width, mark: (row) => target}, ...]
  constructor(holder, columns, rows, theme, events) {
    Object.assign(this, {columns, rows, theme, events, sort: null, isDown: true, query: "", chosen: null, shown: rows});
    this.texts = rows.map((row) => columns.map((column) => column.text(row)).join("\n").toLowerCase());
    this.count = element("span", {className: "count", role: "status"});
    this.filter = element("input", {type: "search", placeholder: "Filter rows", ariaLabel: "Filter rows", className: "filter"});
    this.filter.addEventListener("input", () => this.setQuery(this.filter.value));
    this.template = columns.map((column) => (column.isFigure ? "92px" : `minmax(${column.width || 120}px, ${column.grow || 1}fr)`)).join(" ");
    this.head = element("div", {className: "row head", role: "row"});
    this.head.style.gridTemplateColumns = this.template;
    columns.forEach((column, i) => {
      const button = element("button", {className: column.isFigure ? "figure" : "", type: "button"}, column.title);
      button.addEventListener("click", () => this.sortBy(i));
      this.head.append(element("div", {role: "columnheader", ariaSort: "none"}, button));
    });
    this.body = element("div", {className: "rows"});
    this.scroller = element("div", {className: "scroller", tabIndex: 0, role: "table", ariaLabel: "Rows"}, this.head, this.body);
    this.scroller.addEventListener("scroll", () => this.render());
    this.scroller.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.render()).observe(this.scroller);
    holder.replaceChildren(element("div", {className: "tools"}, this.filter, this.count), this.scroller);
    this.apply();
  }

  setQuery(query) {
    this.query = query.trim().toLowerCase();
    this.filter.value = query;
    this.apply();
  }

  sortBy(index) {
    const column = this.columns[index];
    this.isDown = this.sort === index ? !this.isDown : Boolean(column.isFigure);
    this.sort = index;
    [...this.head.children].forEach((cell, i) => {
      cell.ariaSort = i !== index ? "none" : this.isDown ? "descending" : "ascending";
      cell.dataset.sort = i !== index ? "" : this.isDown ? "▼" : "▲";
    });
    this.apply();
  }

  apply() {
    const words = this.query.split(/\s+/).filter(Boolean);
    const kept = this.rows.map((row, i) => [row, i]).filter(([, i]) => words.every((word) => this.texts[i].includes(word)));
    if (this.sort !== null) {
      const {value, text} = this.columns[this.sort];
      const key = value || text;
      const sign = this.isDown ? -1 : 1;
      kept.sort(([a, i], [b, j]) => {
        const [x, y] = [key(a), key(b)];
        return (x < y ? -sign : x > y ? sign : 0) || i - j;
      });
    }
    this.shown = kept.map(([row]) => row);
    this.count.textContent = `${this.shown.length} of ${this.rows.length}`;
    this.body.style.height = `${this.shown.length * ROW}px`;
    this.render();
  }

  render() {
    const {scrollTop, clientHeight} = this.scroller;
    const begin = Math.max(0, Math.floor((scrollTop - ROW) / ROW) - 4);
    const end = Math.min(this.shown.length, begin + Math.ceil(clientHeight / ROW) + 8);
    const made = [];
    for (let i = begin; i < end; i++) made.push(this.makeRow(this.shown[i], i));
    this.body.replaceChildren(...made);
  }

  makeRow(row, place) {
    const made = element("div", {className: row === this.chosen ? "row chosen" : "row", role: "row"});
    made.style.gridTemplateColumns = this.template;
    made.style.top = `${place * ROW}px`;
    for (const column of this.columns) {
      const text = column.text(row);
      const cell = element("div", {className: column.isFigure ? "figure" : "", role: "cell", title: text});
      const target = column.mark ? column.mark(row) : undefined;
      if (target !== undefined && text) cell.append(markOf(this.theme, target));
      cell.append(text);
      made.append(cell);
    }
    made.addEventListener("click", () => this.choose(row));
    return made;
  }

  choose(row, isSilent = false) {
    this.chosen = row;
    const place = this.shown.indexOf(row);
    const {scrollTop, clientHeight} = this.scroller;
    if (place >= 0 && (place * ROW < scrollTop || (place + 2) * ROW > scrollTop + clientHeight)) {
      this.scroller.scrollTop = Math.max(0, place * ROW - clientHeight / 2);
    }
    this.render();
    if (!isSilent && row) this.events.chosen(row);
  }

  key(event) {
    const step = {ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10}[event.key];
    if (!step || !this.shown.length) return;
    event.preventDefault();
    const place = this.shown.indexOf(this.chosen);
    this.choose(this.shown[Math.max(0, Math.min(this.shown.length - 1, place + step))]);
  }
}

// The mark of a target as a small picture in the text.
function markOf(theme, target) {
  const ratio = window.devicePixelRatio || 1;
  const canvas = element("canvas", {className: "mark", width: 14 * ratio, height: 14 * ratio, ariaHidden: "true"});
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  drawMark(pen, theme.mark(target), 7, 7, 4.5, theme.colour(target));
  return canvas;
}
