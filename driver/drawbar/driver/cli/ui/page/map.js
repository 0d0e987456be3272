// The map: hosts and ports on the left, enclosures and slots on the right, attachments as lines.
// Up to WHOLE devices all is drawn. Beyond, enclosures are heat maps, and only lines of moving, failed and selected attachments appear.

import {draw, element, make, replace, set, time} from "./dom.js";
import {GLYPHS, STEPS, WORDS, byName, chip, cluster, fabricChip, link, newCounts, routes, step, summary} from "./store.js";
import {load, noted} from "./overview.js";

const WHOLE = 60; // devices
const CELLS = 2000; // of a heat map, until more are asked for
const HOSTS = 16; // cards
const HEAT_HOSTS = 8;
const NARROW = 640; // pixels; below, no lines
const BAD = new Set(["failed", "moving"]);

const map = element("map");
let chosenFabric = null, isAll = false, lit = "";
let spots = new Map(); // slots by key of the row
let ports = new Map(); // ports by key of the row

export const state = () => ({fabric: chosenFabric ?? ""});
export function choose(name) { chosenFabric = name; isAll = false; }

function names() {
  const listed = cluster.fabrics.map((fabric) => fabric.name);
  if (summary().fabrics.has("")) listed.push("");
  return listed;
}

function tabs(listed, current) {
  replace(element("tabs"), listed.length < 2 ? [] : listed.map((name) => {
    const fabric = cluster.fabrics.find((each) => each.name === name);
    const mark = !fabric || fabric.state === "Connected" ? "" : make("i", {class: "mark", title: fabric.state}, "!");
    return make("a", {href: `#/?fabric=${encodeURIComponent(name || "-")}`, "aria-current": name === current ? "true" : ""}, name || "devices in nodes", mark);
  }));
}

function head(fabric, counts) {
  const lines = [];
  if (fabric) {
    lines.push(make("div", {class: "map-title"}, link(routes.fabric(fabric.name), fabric.name, {class: "big"}), fabricChip(fabric), cluster.isLost ? "" : time(fabric.since, "for "),
      make("span", {class: "dim push"}, counts.all ? `${load(counts, " of ")} in use · ${noted(counts)}` : ""),
      counts.all ? link(routes.exact(fabric.name), "as a table", {class: "action", "aria-keyshortcuts": "t"}) : ""));
    // In the other states, the reason is that of the condition Connected.
    const isLost = !["Connected", "Degraded", "Blocked", "Pending", "Missing", "Unknown", "Deleting"].includes(fabric.state);
    if (fabric.message) lines.push(make("p", {class: `banner ${["Degraded", "Blocked", "Unknown"].includes(fabric.state) ? "warn" : fabric.state === "Pending" ? "" : "bad"}`}, fabric.message, isLost ? `${/[.!?…]$/.test(fabric.message) ? "" : "."} Attached devices keep working; attaches and releases wait until the manager answers.` : ""));
  } else if (counts.all) {
    lines.push(make("div", {class: "map-title"}, make("b", {class: "big"}, "Devices in nodes"), make("span", {class: "dim push"}, noted(counts))));
  }
  replace(element("map-head"), lines);
}

function legend(counts) {
  const shown = ["used", "free", "moving", "kept", "blocked", "failed"].filter((category) => counts[category] || ["used", "free"].includes(category));
  return make("p", {class: "legend", "aria-hidden": "true"}, shown.map((category) => make("span", {}, make("i", {class: `cell ${category}`}, GLYPHS[category]), WORDS[category])));
}

const described = (row) => [row.device.name, row.device.state, row.device.node && `node ${row.device.node}`, row.device.port && `port ${row.device.port}`,
  row.device.claims.map((claim) => `claim ${claim.namespace}/${claim.name}`).join(", "), row.isIll && "Unhealthy", row.taints.join(" "), row.why].filter(Boolean).join(" · ");

function slot(row, isWhole) {
  const name = isWhole ? [make("i", {"aria-hidden": "true"}, row.isIll ? "!" : GLYPHS[row.category]), make("span", {}, row.device.name)] : row.isIll ? "!" : ["failed", "blocked", "moving"].includes(row.category) ? GLYPHS[row.category] : "";
  const made = make("a", {href: routes.device(row), class: `cell ${row.category}${row.isIll ? " ill" : ""} spot`, "data-key": row.key, tabindex: "-1",
    title: isWhole ? row.device.model : "", "aria-label": described(row)}, name);
  return made;
}

function enclosure(name, rows, isWhole, isOwn) {
  const counts = newCounts(), classes = new Set();
  let longest = 0;
  for (const row of rows) { counts.all++; counts[row.category]++; classes.add(row.device.deviceClass || "other"); longest = Math.max(longest, row.device.name.length); }
  const label = name || (isOwn ? "no node" : "devices");
  const made = make("section", {class: "enclosure", "aria-label": `${isOwn ? "node" : "enclosure"} ${label}, ${counts.used} of ${counts.all} in use`},
    make("h3", {}, isOwn && name ? link(routes.node(name), label, {tabindex: "-1", class: "spot"}) : make("span", {class: "name", title: label}, label),
      make("small", {title: [...classes].sort().join(", ")}, isWhole ? `${[...classes].sort().join(", ")} ` : "", make("b", {}, load(counts)))),
    make("div", {class: "slots"}, rows.map((row) => slot(row, isWhole))));
  // Slots are as wide as the longest name.
  if (isWhole) made.style.setProperty("--name", `${longest}ch`);
  return made;
}

// The clause about the host in a problem of its fabric.
const cause = (problem, name) => problem.split("; ").find((clause) => clause.includes(name)).replace(`host ${name} `, "").split(": ")[0];

function host(item, rows, problem) {
  const title = item.node ? link(routes.node(item.node), item.node, {class: "spot name", tabindex: "-1", "data-host": item.host}) : make("span", {class: "name"}, item.host);
  const sorted = [...rows].sort((left, right) => byName(left.device.port, right.device.port) || byName(left.device.name, right.device.name));
  const note = problem ? cause(problem, item.host) : rows.length ? `host ${item.host}` : `host ${item.host} · nothing attached`;
  return make("section", {class: `host${problem ? " bad" : ""}`, "aria-label": `host ${item.host}, node ${item.node || "none"}, ${rows.length} attached`},
    make("div", {}, make("h3", {}, problem ? make("i", {"aria-hidden": "true"}, "! ") : "", title), make("p", {class: "dim", title: problem}, item.node && item.node !== item.host || problem ? note : rows.length ? "" : "nothing attached")),
    make("ul", {class: "ports"}, sorted.map((row) => make("li", {},
      make("a", {href: routes.device(row), class: `port ${row.category} spot`, "data-key": row.key, tabindex: "-1", "aria-label": `port ${row.device.port || "unknown"}: ${described(row)}`},
        make("span", {class: "far"}, row.device.name), make("span", {}, row.device.port || "–"), make("i", {"aria-hidden": "true"}, GLYPHS[row.category]))))));
}

// Hosts that need attention are first; the others are counted.
function hosts(fabric, isWhole) {
  const byHost = summary().hosts.get(fabric.name) || new Map();
  const known = new Map(fabric.hosts.map((item) => [item.host, item]));
  for (const [name, rows] of byHost) if (!known.has(name)) known.set(name, {host: name, node: rows[0].device.node});
  const messages = fabric.problems.map((problem) => problem.message);
  const problemOf = (name) => messages.find((message) => message.split(/[\s,;:"']+/).includes(name)) || "";
  const judged = [...known.values()].map((item) => {
    const rows = byHost.get(item.host) || [], problem = messages.length ? problemOf(item.host) : "";
    return {item, rows, problem, rank: problem ? 0 : rows.some((row) => BAD.has(row.category) || row.key === lit) ? 1 : rows.length ? 2 : 3};
  });
  const most = isWhole ? HOSTS : HEAT_HOSTS;
  let shown = judged;
  if (judged.length > most) shown = judged.filter((each) => each.rank < (isWhole ? 3 : 2)).sort((left, right) => left.rank - right.rank).slice(0, most);
  shown.sort((left, right) => byName(left.item.node || left.item.host, right.item.node || right.item.host));
  const rest = judged.length - shown.length;
  const used = judged.filter((each) => each.rows.length).length - shown.filter((each) => each.rows.length).length;
  const cards = shown.map(({item, rows, problem}) => host(item, isWhole ? rows : rows.filter((row) => BAD.has(row.category)), problem));
  if (rest) cards.push(make("p", {class: "host rest"}, make("b", {}, `${rest.toLocaleString("en")} ${shown.length ? "more " : ""}host${rest === 1 ? "" : "s"}`), make("span", {class: "dim"}, `${used.toLocaleString("en")} with attached devices`)));
  if (!cards.length) cards.push(make("p", {class: "host rest dim"}, "No host is mapped to a node yet."));
  return cards;
}

// Rows come sorted by name; the class is a second key.
const byClass = (left, right) => left.device.deviceClass < right.device.deviceClass ? -1 : left.device.deviceClass > right.device.deviceClass ? 1 : 0;

let cards = new Map(); // of enclosures, by name, with the rows that they show
let drawnNow = new Map();

// A change of one device draws one card again.
function card(name, rows, isWhole, isOwn) {
  const kind = `${chosenFabric ?? ""} ${isWhole} ${isOwn}`, old = cards.get(name);
  const isSame = old && old.kind === kind && old.rows.length === rows.length && old.rows.every((row, index) => row === rows[index]);
  const made = isSame ? old : {kind, rows: [...rows], element: enclosure(name, rows, isWhole, isOwn)};
  drawnNow.set(name, made);
  return made.element;
}

function enclosures(all, isWhole, isOwn) {
  drawnNow = new Map();
  const found = arranged(all, isWhole, isOwn);
  cards = drawnNow;
  return found;
}

function arranged(all, isWhole, isOwn) {
  const listed = [...all].sort(([left], [right]) => byName(left, right));
  for (const [, rows] of listed) rows.sort(byClass);
  if (isAll || isWhole) return {cards: listed.map(([name, rows]) => card(name, rows, isWhole, isOwn)), rest: 0};
  // Those with trouble are first.
  const ordered = [...listed.filter(([, rows]) => rows.some((row) => BAD.has(row.category))), ...listed.filter(([, rows]) => !rows.some((row) => BAD.has(row.category)))];
  let cells = 0;
  const shown = ordered.filter(([, rows]) => (cells += rows.length) <= CELLS || cells === rows.length);
  return {cards: shown.map(([name, rows]) => card(name, rows, isWhole, isOwn)), rest: listed.length - shown.length};
}

// Cards that stay keep focus and listeners: an element moves only where the order changed.
function place(parent, elements) {
  if (elements.length === parent.children.length && elements.every((each, index) => each === parent.children[index])) return;
  elements.forEach((each, index) => {
    const old = parent.children[index];
    if (old === each) return;
    parent.insertBefore(each, old ?? null);
    if (old && !elements.includes(old)) old.remove();
  });
  while (parent.children.length > elements.length) parent.lastElementChild.remove();
}

const left = make("div", {class: "hosts"}), right = make("div", {class: "enclosures"}), lines = draw("svg", {class: "lines", "aria-hidden": "true"});
const info = make("p", {class: "info", role: "status"}), more = make("p", {class: "more"});

export function drawMap() {
  const listed = names();
  const current = listed.includes(chosenFabric) ? chosenFabric : listed[0];
  tabs(listed, current);
  const fabric = cluster.fabrics.find((each) => each.name === current);
  const entry = summary().fabrics.get(current ?? "-") || {counts: newCounts(), enclosures: new Map()};
  head(fabric, entry.counts);
  const isWhole = entry.counts.all <= WHOLE, isOwn = current === "";
  map.className = `${isWhole ? "whole" : "heat"}${isOwn ? " own" : ""}`;
  if (!cluster.isRead) return;
  if (!performance.getEntriesByName("drawn").length) performance.mark("drawn"); // For bench/ui.py.
  if (!entry.counts.all) {
    map.className = "";
    replace(map, [nothing(fabric)]);
    replace(element("map-foot"), []);
    return;
  }
  const focused = map.contains(document.activeElement) ? document.activeElement.dataset.key : "";
  if (left.parentElement !== map) map.replaceChildren(lines, left, right);
  left.hidden = !fabric;
  replace(left, fabric ? hosts(fabric, isWhole) : []);
  const {cards: made, rest} = enclosures(entry.enclosures, isWhole, isOwn);
  place(right, made);
  const foot = element("map-foot");
  if (info.parentElement !== foot) foot.replaceChildren(more, info, make("div", {id: "legend"}));
  more.replaceChildren(...rest ? [make("button", {type: "button", id: "all-enclosures"}, `Show ${rest} more enclosures`)] : []);
  replace(element("legend"), [legend(entry.counts)]);
  spots = new Map([...right.querySelectorAll("[data-key]")].map((spot) => [spot.dataset.key, spot]));
  ports = new Map([...left.querySelectorAll("[data-key]")].map((port) => [port.dataset.key, port]));
  if (!map.querySelector(".spot[tabindex='0']")) map.querySelector(".spot")?.setAttribute("tabindex", "0");
  if (focused && !map.contains(document.activeElement)) (spots.get(focused) ?? ports.get(focused))?.focus();
  connect();
  light(lit);
}

function nothing(fabric) {
  if (!fabric) return make("div", {class: "empty tall"}, make("p", {class: "big"}, "No fabrics and no devices yet"), make("p", {},
    "Create a Fabric with the address of your fabric manager. Its devices appear here as soon as the controller has read them."), make("pre", {}, "kubectl apply -f fabric.yaml\ndrawbar doctor"));
  return make("div", {class: "empty tall"}, make("p", {class: "big"}, fabric.state === "Connected" ? "The fabric manager lists no devices" : "No devices are known"),
    make("p", {}, fabric.state === "Connected" ? "Devices appear here as soon as the manager lists them." : "The controller has not read this fabric's devices."), make("pre", {}, `kubectl describe fabric ${fabric.name}\ndrawbar fabric check ${fabric.name}`));
}

function connect() {
  const isNarrow = map.clientWidth < NARROW;
  if (isNarrow) { lines.replaceChildren(); return; }
  const origin = map.getBoundingClientRect();
  const isHeat = map.classList.contains("heat");
  const made = [];
  lines.setAttribute("width", origin.width);
  lines.setAttribute("height", origin.height);
  for (const [key, port] of ports) {
    const spot = spots.get(key), row = cluster.rows.get(key);
    if (!spot || !row || isHeat && !BAD.has(row.category) && key !== lit) continue;
    const from = port.lastElementChild.getBoundingClientRect(), to = spot.getBoundingClientRect();
    const x = from.right - origin.left + 1, y = from.top + from.height / 2 - origin.top, u = to.left - origin.left, v = to.top + to.height / 2 - origin.top;
    const gap = right.getBoundingClientRect().left - origin.left, middle = (x + gap) / 2;
    const d = `M${x} ${y} C${middle} ${y} ${middle} ${v} ${gap} ${v} L${u} ${v}`;
    made.push(draw("a", {href: routes.device(row), class: `line ${row.category}${isBack(row) ? " back" : ""}`, "data-key": key, tabindex: "-1"}, draw("path", {class: "hit", d}), draw("path", {d})));
  }
  replace(lines, made);
}

const isBack = (row) => row.device.state === "Releasing" || row.device.state === "Released";

function light(key) {
  lit = key;
  map.classList.toggle("lighting", Boolean(key));
  for (const each of map.querySelectorAll(".lit")) each.classList.remove("lit");
  const row = cluster.rows.get(key);
  if (row) for (const each of [spots.get(key), ports.get(key), ...[...lines.children].filter((line) => line.dataset.key === key)]) each?.classList.add("lit");
  set(info, row ? `${described(row)}${STEPS[row.device.state] && row.category === "moving" ? ` · step${step(row.device.state)}` : ""}` : "");
}

function lightHost(name) {
  light("");
  let isAny = false;
  for (const [key, port] of ports) {
    const row = cluster.rows.get(key);
    if (row?.device.host !== name) continue;
    isAny = true;
    for (const each of [spots.get(key), port, ...[...lines.children].filter((line) => line.dataset.key === key)]) each?.classList.add("lit");
  }
  map.classList.toggle("lighting", isAny);
}

const over = (happened) => {
  const keyed = happened.target.closest?.("[data-key]"), named = happened.target.closest?.("[data-host]");
  if (keyed) light(keyed.dataset.key); else if (named) lightHost(named.dataset.host); else if (lit || map.classList.contains("lighting")) light("");
};
map.addEventListener("pointerover", over);
map.addEventListener("pointerleave", () => light(""));
map.addEventListener("focusin", (focus) => {
  for (const each of map.querySelectorAll(".spot[tabindex='0']")) each.setAttribute("tabindex", "-1");
  if (focus.target.classList.contains("spot")) focus.target.setAttribute("tabindex", "0");
  over(focus);
});
map.addEventListener("focusout", () => light(""));

// The nearest spot in the direction of the arrow.
map.addEventListener("keydown", (press) => {
  const towards = {ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1]}[press.key];
  if (!towards || press.ctrlKey || press.altKey || press.metaKey) return;
  const box = document.activeElement.getBoundingClientRect();
  let best = null, least = Infinity;
  for (const spot of map.querySelectorAll(".spot")) {
    const other = spot.getBoundingClientRect();
    const x = other.left + other.width / 2 - box.left - box.width / 2, y = other.top + other.height / 2 - box.top - box.height / 2;
    const along = x * towards[0] + y * towards[1], aside = Math.abs(x * towards[1]) + Math.abs(y * towards[0]);
    if (along > 2 && along + 3 * aside < least) { least = along + 3 * aside; best = spot; }
  }
  if (best) { best.focus(); press.preventDefault(); }
});
element("map-foot").addEventListener("click", (press) => { if (press.target.id === "all-enclosures") { isAll = true; drawMap(); } });
new ResizeObserver(() => { if (map.clientWidth && cluster.isRead) connect(); }).observe(map);
