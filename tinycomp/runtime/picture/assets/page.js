// Puts the page together: one picture or two, with the search, the pane of details and the tabs that belong to them.

const views = JSON.parse(document.getElementById("data").textContent);
const targets = [...new Set(views.flatMap((view) => view.targets))];
setScheme(window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
const theme = new Theme(targets);
const $ = (id) => document.getElementById(id);
const pane = $("details");
const tabs = new Map();
let active = null;
let found = [];
let foundAt = -1;

$("title").textContent = views.map((view) => view.model).join(" and ");
$("headline").textContent = views.length === 1 ? views[0].headline.replace(/^[^:]*: /, "") : "side by side";
for (const target of [...targets, ""]) {
  if (target || views.some((view) => view.nodes.some((node) => !node.target && node.kind === "operator"))) {
    $("legend").append(element("span", {className: "key"}, markOf(theme, target), target || "host"));
  }
}
const pictures = views.map((view, place) => {
  const canvas = element("canvas", {tabIndex: 0, role: "application", ariaLabel: `Graph of ${view.model}. Arrows follow the data, Enter opens and closes, slash searches.`, className: "graph"});
  const minimap = element("canvas", {className: "minimap", ariaHidden: "true"});
  const caption = views.length > 1 ? element("div", {className: "caption"}, element("b", {}, "AB"[place]), ` ${view.headline}`) : null;
  $("pictures").append(element("section", {}, canvas, minimap, caption));
  const picture = new Picture(canvas, minimap, view, theme, {selected: (node) => selected(picture, node)}, caption);
  canvas.addEventListener("pointerdown", () => { active = picture; });
  canvas.addEventListener("focus", () => { active = picture; });
  return picture;
});
active = pictures[0];

function selected(picture, node) {
  active = picture;
  for (const other of pictures) {
    if (other !== picture) other.select(node ? counterpart(other, node) : null, {centre: true, reveal: true, isSilent: true});
  }
  refresh();
  $("live").textContent = node ? `${node.op} ${node.label}, ${placeOf(node)}` : "";
}

// The node of another report that computes the same part of the model.
function counterpart(picture, node) {
  const sources = new Set(node.sources);
  let best = null;
  let most = 0;
  for (const other of picture.graph.nodes) {
    const shared = other.sources.filter((source) => sources.has(source)).length;
    const score = shared ? (2 * shared) / (sources.size + other.sources.length) + (other.op === node.op ? 0.01 : 0) : 0;
    if (score > most) [best, most] = [other, score];
  }
  return best;
}

function refresh() {
  showDetails(pane, active, theme, {chosen: (node) => goTo(active, node)});
  for (const tab of tabs.values()) tab.follow();
}

function goTo(picture, node) {
  picture.select(node, {centre: true, reveal: true});
}

// ---- tabs

function addTab(name, title, make) {
  const button = element("button", {type: "button", role: "tab", id: `tab-${name}`}, title);
  const panel = element("div", {role: "tabpanel", id: `panel-${name}`, className: "panel", hidden: true});
  panel.setAttribute("aria-labelledby", button.id);
  const tab = {button, panel, follow: () => {}, content: null, make};
  button.addEventListener("click", () => showTab(name));
  $("tabs").append(button);
  $("panels").append(panel);
  tabs.set(name, tab);
}

function showTab(name) {
  for (const [each, tab] of tabs) {
    const isShown = each === name;
    tab.panel.hidden = !isShown;
    tab.button.setAttribute("aria-selected", String(isShown));
    tab.button.tabIndex = isShown ? 0 : -1;
    if (isShown && !tab.content) tab.content = tab.make(tab.panel, tab);
    if (isShown) tab.follow();
  }
}

$("tabs").addEventListener("keydown", (event) => {
  const names = [...tabs.keys()];
  const at = names.findIndex((name) => tabs.get(name).panel.hidden === false);
  const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
  if (!step) return;
  event.stopPropagation();
  showTab(names[(at + step + names.length) % names.length]);
  tabs.get(names[(at + step + names.length) % names.length]).button.focus();
});

function kernelText(picture, node) {
  return [...new Set(node.calls.map((i) => picture.data.calls[i]).map((call) => (call.algorithm ? `${call.kernel}, ${call.algorithm}` : call.kernel)))].join("; ");
}

function regionOf(node) {
  for (let scope = node.scope; scope.index >= 0; scope = scope.scope) if (scope.kind === "region") return scope.op;
  return "";
}

function nodeTable(picture, holder, tab) {
  const {data, graph} = picture;
  const rows = graph.leaves;
  const outBytes = (node) => node.writes.reduce((sum, value) => sum + (value < 0 ? 0 : data.values[value][2]), 0);
  const type = (node) => (node.writes.length && node.writes[0] >= 0 ? data.values[node.writes[0]][1] : "");
  const columns = [
    {title: "node", text: (node) => node.label, grow: 2, width: 150},
    {title: "operator", text: (node) => node.op, mark: (node) => node.target},
    {title: "runs on", text: (node) => node.target || `host ${node.tier}`, width: 80},
    {title: "region", text: regionOf, width: 80},
    {title: "type", text: type, width: 120, grow: 1.4},
    {title: "MACs", text: (node) => (node.macs ? si(node.macs) : ""), value: (node) => node.macs, isFigure: true},
    {title: "bytes", text: (node) => si(outBytes(node), "B"), value: outBytes, isFigure: true},
    ...(data.profile ? [{title: "time", text: (node) => (node.seconds === 0 ? "fused" : duration(node.seconds)), value: (node) => node.seconds || 0, isFigure: true}] : []),
    {title: "kernel", text: (node) => kernelText(picture, node), width: 100, grow: 1.4},
    {title: "why not elsewhere", text: (node) => node.reasons.slice(0, 2).map((i) => data.reasons[i].slice(1, 4).filter(Boolean).join(": ")).join("; "), grow: 2.4, width: 140},
  ];
  const table = new Table(holder, columns, rows, theme, {chosen: (node) => goTo(picture, node)});
  tab.follow = () => {
    if (picture.selected && table.chosen !== picture.selected && rows.includes(picture.selected)) table.choose(picture.selected, true);
    table.render();
  };
  return table;
}

pictures.forEach((picture, place) => {
  const of = pictures.length > 1 ? ` of ${"AB"[place]}` : "";
  const mark = pictures.length > 1 ? "-ab"[place + 1] : "";
  const follow = (chart) => () => chart.draw();
  const events = {picked: (item) => item.nodes.length && goTo(picture, picture.graph.nodes[item.nodes[0]])};
  addTab(`nodes${mark}`, `Nodes${of}`, (holder, tab) => nodeTable(picture, holder, tab));
  if (picture.data.profile) {
    addTab(`time${mark}`, `Timeline${of}`, (holder, tab) => {
      const chart = new Timeline(holder, picture, theme, events);
      tab.follow = follow(chart);
      return chart;
    });
  }
  if (picture.data.accuracy) {
    addTab(`accuracy${mark}`, `Accuracy${of}`, (holder, tab) => {
      holder.append(element("div", {className: "tools"}, element("span", {className: "count"}, picture.data.accuracy.verdict)));
      const chart = new AccuracyChart(holder, picture, theme, events);
      tab.follow = follow(chart);
      return chart;
    });
  }
  if (picture.data.arenas.some((arena) => arena.blocks.length)) {
    addTab(`memory${mark}`, `Memory${of}`, (holder, tab) => {
      const arenas = picture.data.arenas.filter((arena) => arena.blocks.length);
      const choice = element("select", {ariaLabel: "Region"}, ...arenas.map((arena) => element("option", {}, `${arena.region}: ${si(arena.size, "B")} in ${arena.blocks.length} buffers`)));
      holder.append(element("div", {className: "tools"}, choice, element("span", {className: "count"}, "bytes upwards, kernel calls from left to right")));
      const chart = new ArenaChart(holder, picture, theme, events);
      chart.show(arenas[0]);
      choice.addEventListener("change", () => chart.show(arenas[choice.selectedIndex]));
      tab.follow = follow(chart);
      return chart;
    });
  }
});
if (pictures.length > 1) addTab("differences", "Differences", differences);

function differences(holder, tab) {
  const sides = pictures.map((picture) => {
    const bySource = new Map();
    for (const node of picture.graph.leaves) {
      for (const source of node.sources) {
        const before = bySource.get(source) || {node, op: node.op, targets: new Set(), seconds: 0, isTimed: false, kernels: new Set()};
        before.targets.add(node.target || "host");
        before.seconds += (node.seconds || 0) / node.sources.length;
        before.isTimed = before.isTimed || node.seconds !== null;
        const kernel = kernelText(picture, node);
        if (kernel) before.kernels.add(kernel);
        bySource.set(source, before);
      }
    }
    return bySource;
  });
  const list = (names) => [...names].sort().join(", ");
  const rows = [...new Set(sides.flatMap((side) => [...side.keys()]))].map((source) => {
    const [a, b] = sides.map((side) => side.get(source));
    const isMoved = !a || !b || list(a.targets) !== list(b.targets);
    const isOther = !isMoved && list(a.kernels) !== list(b.kernels);
    return {source, a, b, change: isMoved ? (a && b ? "moved" : a ? "only in A" : "only in B") : isOther ? "other kernel" : ""};
  });
  const order = ["moved", "other kernel", "only in A", "only in B", ""];
  rows.sort((x, y) => order.indexOf(x.change) - order.indexOf(y.change));
  const isTimed = pictures.every((picture) => picture.data.profile);
  const gain = (row) => (row.a && row.b && row.a.isTimed && row.b.isTimed ? row.b.seconds - row.a.seconds : 0);
  const side = (key, name) => [
    {title: `${name} runs on`, text: (row) => (row[key] ? list(row[key].targets) : ""), mark: (row) => (row[key] ? row[key].node.target : undefined), width: 90},
    {title: `${name} kernel`, text: (row) => (row[key] ? list(row[key].kernels) : ""), width: 120},
    ...(isTimed ? [{title: `${name} time`, text: (row) => (row[key] && row[key].isTimed ? duration(row[key].seconds) : ""), value: (row) => (row[key] ? row[key].seconds : 0), isFigure: true}] : []),
  ];
  const columns = [
    {title: "node", text: (row) => row.source, grow: 2, width: 150},
    {title: "operator", text: (row) => (row.a || row.b).op, width: 90},
    {title: "change", text: (row) => row.change, width: 90},
    ...side("a", "A"), ...side("b", "B"),
    ...(isTimed ? [{title: "B - A", text: (row) => (gain(row) ? `${gain(row) > 0 ? "+" : "-"}${duration(Math.abs(gain(row)))}` : ""), value: gain, isFigure: true}] : []),
  ];
  const table = new Table(holder, columns, rows, theme, {
    chosen: (row) => goTo(row.a ? pictures[0] : pictures[1], (row.a || row.b).node),
  });
  tab.follow = () => table.render();
  return table;
}

// ---- search

function search(query) {
  const words = query.trim().toLowerCase().split(/\s+/).filter(Boolean);
  found = [];
  foundAt = -1;
  for (const picture of pictures) {
    if (!words.length) {
      picture.matches = null;
      picture.draw();
      continue;
    }
    const hits = picture.graph.nodes.filter((node) => {
      if (node.searched === undefined) {
        const types = node.writes.map((value) => (value < 0 ? "" : picture.data.values[value].slice(0, 2).join(" ")));
        node.searched = [node.op, node.label, node.target || "host", ...node.sources, ...types, kernelText(picture, node)].join("\n").toLowerCase();
      }
      return words.every((word) => node.searched.includes(word));
    });
    picture.matches = new Set(hits.flatMap((node) => [node, picture.graph.shown(node)]));
    // Of a container and what it holds, the innermost are what was looked for.
    const holders = new Set(hits.map((node) => node.scope));
    found.push(...hits.filter((node) => !holders.has(node)).map((node) => [picture, node]));
    picture.draw();
  }
  $("found").textContent = words.length ? (found.length ? `${found.length} found` : "none") : "";
}

function nextFound(step) {
  if (!found.length) return;
  foundAt = (foundAt + step + found.length) % found.length;
  const [picture, node] = found[foundAt];
  goTo(picture, node);
  picture.matches = new Set(found.flatMap(([, each]) => [each, picture.graph.shown(each)]));
  $("found").textContent = `${foundAt + 1} of ${found.length}`;
}

$("search").addEventListener("input", () => search($("search").value));
$("search").addEventListener("keydown", (event) => {
  if (event.key === "Enter") nextFound(event.shiftKey ? -1 : 1);
  if (event.key === "Escape") {
    $("search").value = "";
    search("");
    active.canvas.focus();
  }
  event.stopPropagation();
});

// ---- commands, by button and by key

function setHeat(heat) {
  $("heat").value = heat;
  for (const picture of pictures) {
    picture.heat = heat;
    picture.draw();
  }
}

function setScheme(scheme) {
  document.documentElement.dataset.scheme = scheme;
}

function turnScheme() {
  setScheme(theme.isDark ? "light" : "dark");
  theme.refresh();
  for (const picture of pictures) {
    picture.drawMinimap();
    picture.draw();
  }
  $("legend").querySelectorAll(".key").forEach((key, i) => key.firstChild.replaceWith(markOf(theme, [...targets, ""][i])));
  refresh();
}

const inner = ["composite", "function"];
const outer = ["region", "control", "body"];
const commands = {
  composites: () => {
    const isOpen = pictures.some((p) => p.graph.nodes.some((node) => inner.includes(node.kind) && node.isOpen));
    for (const picture of pictures) picture.setOpen(inner, !isOpen);
  },
  regions: () => {
    const isOpen = pictures.some((p) => p.graph.nodes.some((node) => outer.includes(node.kind) && node.isOpen));
    for (const picture of pictures) picture.setOpen(outer, !isOpen);
  },
  columns: () => { for (const picture of pictures) picture.setWrap(!picture.wraps); },
  fit: () => { for (const picture of pictures) picture.fit(); },
  closer: () => active.zoom(1.25),
  farther: () => active.zoom(0.8),
  scheme: turnScheme,
  drawer: () => { document.body.classList.toggle("folded"); },
  help: () => $("help").showModal(),
  heat: () => {
    const known = [...$("heat").options].filter((option) => !option.disabled).map((option) => option.value);
    setHeat(known[(known.indexOf($("heat").value) + 1) % known.length]);
  },
  search: () => $("search").focus(),
  clear: () => active.select(null),
};
const keys = {c: "composites", r: "regions", w: "columns", f: "fit", 0: "fit", "+": "closer", "=": "closer", "-": "farther", d: "scheme", t: "drawer", "?": "help", h: "heat", "/": "search", Escape: "clear"};

for (const button of document.querySelectorAll("[data-command]")) {
  button.addEventListener("click", () => {
    commands[button.dataset.command]();
    if (!["search", "help"].includes(button.dataset.command)) active.canvas.focus();
  });
}
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, select, textarea") || $("help").open;
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
  event.preventDefault();
  commands[keys[event.key]]();
});
$("heat").addEventListener("change", () => setHeat($("heat").value));
const isKnown = {seconds: (view) => view.profile, loss: (view) => view.accuracy};
for (const option of $("heat").options) option.disabled = option.value in isKnown && !views.some(isKnown[option.value]);

$("splitter").addEventListener("pointerdown", (event) => {
  $("splitter").setPointerCapture(event.pointerId);
  const move = (moved) => {
    document.body.style.setProperty("--drawer", `${Math.max(90, Math.min(window.innerHeight * 0.8, window.innerHeight - moved.clientY))}px`);
  };
  $("splitter").addEventListener("pointermove", move);
  $("splitter").addEventListener("pointerup", () => $("splitter").removeEventListener("pointermove", move), {once: true});
});

showTab(pictures.length > 1 ? "differences" : "nodes");
refresh();
window.tinycomp = {pictures, theme, goTo, search, setHeat, commands, showTab, tabs, layered, inversions};
