// The pane that tells everything about the selected node, or about the model where none is.

function showDetails(pane, picture, theme, events) {
  const node = picture.selected;
  pane.replaceChildren(...(node ? nodeDetails(picture, node, theme, events) : modelDetails(picture, theme)));
  pane.scrollTop = 0;
}

function nodeDetails(picture, node, theme, events) {
  const {data, graph} = picture;
  const parts = [
    element("h2", {}, markOf(theme, node.target), node.op),
    element("p", {className: "where"}, placeOf(node)),
    facts([
      ["source nodes", node.sources.join("\n")],
      ["operators", node.kind === "composite" ? node.children.map((child) => child.op).join(", ") : ""],
      ["MACs", node.macs ? shareText(si(node.macs), node.macs, graph.totals.macs) : ""],
      ["time", node.seconds === 0 ? "fused into the call of other nodes" : node.seconds !== null ? shareText(duration(node.seconds), node.seconds, graph.totals.seconds) : ""],
      ["arena", node.arena ? si(node.arena, "B") : ""],
      ...Object.entries(node.attributes),
    ]),
  ];
  if (node.hasInside) {
    const toggle = element("button", {type: "button"}, node.isOpen ? "Close" : "Open");
    toggle.addEventListener("click", () => {
      picture.toggle(node);
      showDetails(toggle.closest(".details"), picture, theme, events);
    });
    parts.push(toggle);
  }
  if (node.layer >= 0) parts.push(element("h3", {}, "Signal to noise"), facts(accuracyFacts(data.accuracy, data.accuracy.layers[node.layer])));
  parts.push(...section("Why not elsewhere", node.reasons.map((index) => reasonItem(data.reasons[index], theme)), "ol"));
  parts.push(...section("Reads", valueItems(data, node.reads)), ...section("Gives", valueItems(data, node.writes)));
  const calls = callsOf(picture, node);
  parts.push(...section("Computed by", calls.slice(0, 40).map((call) => callItem(call))));
  if (calls.length > 40) parts.push(element("p", {}, `and ${calls.length - 40} more calls`));
  for (const [title, goesDown] of [["From", false], ["To", true]]) {
    const links = graph.neighbours(node, goesDown).slice(0, 30).map((other) => {
      const link = element("button", {type: "button", className: "link"}, markOf(theme, other.target), `${other.op} ${tail(other.label, 34)}`);
      link.addEventListener("click", () => events.chosen(other));
      return element("li", {}, link);
    });
    parts.push(...section(title, links));
  }
  return parts;
}

function placeOf(node) {
  const outer = [];
  for (let scope = node.scope; scope.index >= 0; scope = scope.scope) outer.unshift(scope.op);
  const place = node.target ? `runs on ${node.target}` : `stays on the host${node.tier ? `, ${node.tier} tier` : ""}`;
  const role = {region: "region", composite: "composite", conversion: "conversion between layouts", function: "function", control: "control flow", body: "body"}[node.kind];
  return `${role ? `${role}; ` : ""}${place}${outer.length ? `; in ${outer.join(" › ")}` : ""}`;
}

function shareText(text, part, whole) {
  return whole ? `${text}, ${percent(part / whole)} of the model` : text;
}

function facts(pairs) {
  const list = element("dl");
  for (const [name, text] of pairs) if (text) list.append(element("dt", {}, name), element("dd", {}, text));
  return list;
}

function section(title, items, tag = "ul") {
  return items.length ? [element("h3", {}, title), element(tag, {}, ...items)] : [];
}

function reasonItem([stage, target, rule, text, progress], theme) {
  const item = element("li", {}, target ? markOf(theme, target) : null, element("b", {}, [target, rule].filter((name, i, all) => name && all.indexOf(name) === i).join(" · ")), ` ${text}`);
  item.append(element("small", {}, ` ${stage}${progress > 0 && progress < 1 ? `, ${percent(progress)} of the pattern matched` : ""}`));
  return item;
}

function valueItems(data, values) {
  return values.filter((value) => value >= 0).map((value) => {
    const [name, type, bytes, isConstant] = data.values[value];
    return element("li", {}, element("code", {}, name || "(nameless)"), ` ${type}, ${si(bytes, "B")}${isConstant ? ", constant" : ""}`);
  });
}

function callsOf(picture, node) {
  const numbers = new Set();
  const waiting = [node];
  while (waiting.length) {
    const each = waiting.pop();
    for (const number of each.calls) numbers.add(number);
    waiting.push(...each.children);
  }
  return [...numbers].sort((a, b) => a - b).map((number) => picture.data.calls[number]);
}

function callItem(call) {
  const parts = [call.algorithm, duration(call.seconds), call.gflops ? `${call.gflops.toFixed(1)} GFLOP/s` : "", call.peak ? `${percent(call.peak)} of peak` : "", call.bytes ? si(call.bytes, "B") : ""];
  const shared = call.nodes.length > 1 ? `together with ${call.nodes.length - 1} more` : "";
  return element("li", {}, element("code", {}, call.kernel), " ", [...parts, shared].filter(Boolean).join(", "));
}

function modelDetails(picture, theme) {
  const {data, graph} = picture;
  const {totals} = data;
  const regions = graph.nodes.filter((node) => node.kind === "region");
  const list = [...data.targets, ""].map((target) => {
    const inside = graph.leaves.filter((node) => node.target === target && node.kind !== "conversion");
    const count = regions.filter((node) => node.target === target).length;
    const macs = inside.reduce((sum, node) => sum + node.macs, 0);
    const text = [`${inside.length} node(s)`, target ? `${count} region(s)` : "", macs ? shareText(`${si(macs)} MACs`, macs, graph.totals.macs) : ""];
    if (!inside.length && !count) return null;
    return element("li", {}, markOf(theme, target), element("b", {}, target || "host"), ` ${text.filter(Boolean).join(", ")}`);
  });
  const stay = graph.leaves.filter((node) => node.isHost && node.kind === "operator");
  return [
    element("h2", {}, data.model),
    element("p", {}, data.headline),
    ...section("Targets", list.filter(Boolean)),
    facts([
      ["8-bit integer MACs", totals.integer_macs ? percent(totals.integer_macs.share) : ""],
      ["time of a run", totals.seconds ? `${duration(totals.seconds.offloaded + totals.seconds.host)}, ${percent(totals.seconds.share)} offloaded` : ""],
      ["arenas", totals.arena ? `${si(totals.arena.bytes, "B")}${totals.arena.bound ? `, ${si(totals.arena.bound, "B")} in use at once` : ""}` : ""],
      ["measured", data.profile ? data.profile.title : ""],
      ["on the host", stay.length ? [...new Set(stay.map((node) => node.op))].join(", ") : ""],
    ]),
    ...section("Notes", data.notes.map((note) => element("li", {}, note))),
    element("p", {className: "hint"}, "Select a node to see its type, its kernels and the reasons why it runs where it runs. Press ? for the keys."),
  ];
}
