// The table of devices, a tree grid. Only rows in sight are in the document; columns are as wide as their longest text, and
// those that do not fit are left out, the least important first. On narrow screens, Why is a line of its own below the row.

import {age, element, make, moment, replace, set} from "./dom.js";
import {WORDS, byName, chip, cluster, count, link, routes, step, text} from "./store.js";
import {className} from "./overview.js";

const ROW = 36, LINE = 18, FOOT = 6; // pixels, as in page.css
const LINES = 3; // the most lines of a reason below its row
const NARROW = 900; // pixels of the grid
const MORE = 6; // rows above and below what can be seen
const HITS = 8;
// The texts that are not empty.
const join = (between, first, second) => first && second ? first + between + second : first || second;
const COLUMNS = [ // name, title, importance, most pixels, text of a row
  ["device", "Device", 0, 320, (row) => row.device.name],
  ["state", "State", 1, 200, (row) => row.device.state + step(row.device.state)],
  ["since", "Since", 6, 80, (row) => age(row.device.since)],
  ["node", "Node", 3, 240, (row) => row.device.node],
  ["port", "Host, port", 9, 240, (row) => join(", ", row.device.host, join(" ", row.device.port && `port ${row.device.port}`, row.device.slot && `slot ${row.device.slot}`))],
  ["claim", "Claim", 4, 320, (row) => row.device.claims.map((claim) => `${claim.namespace}/${claim.name}`).join(", ")],
  ["pods", "Pods", 8, 260, (row) => row.device.claims.flatMap((claim) => claim.pods).join(", ")],
  ["model", "Model", 5, 260, (row) => row.device.model],
  ["class", "Class", 10, 140, (row) => className(row.device.deviceClass)],
  ["health", "Health", 7, 120, (row) => row.device.health],
  ["taints", "Taints", 12, 380, (row) => row.taints.join(" ")],
  ["why", "Why", 2, 620, (row) => row.why || row.device.healthMessage || row.taints.length ? [row.why, row.device.healthMessage, ...row.taints].filter(Boolean).join("; ") : ""],
].map(([name, title, importance, most, of]) => ({name, title, importance, most, of, hasText: false, longest: title, needed: 0, width: 0}));

const WHY = COLUMNS.at(-1);
const grid = element("devices"), body = element("rows");
export const view = {q: "", group: "enclosure", show: "all", sort: ""};
const closed = new Set();
let items = [], places = new Map(), chosen = "", shown = [], measured = -1, isFolded = false;
let tops = [0]; // of each item, and the end
const drawn = new Map();
let elements = 0;

const canvas = document.createElement("canvas").getContext("2d");

function group(row) {
  const device = row.device;
  if (view.group === "none") return "all devices";
  if (view.group === "host") return device.host ? `host ${device.host}${device.node && device.node !== device.host ? ", node " + device.node : ""}` : device.node ? `node ${device.node}` : "attached to no host";
  if (view.group === "state") return device.state;
  if (view.group === "class") return join(", ", className(device.deviceClass || "other"), device.model);
  if (!row.fabric) return `node ${device.node || "unknown"}`;
  return row.enclosure ? `${row.fabric} / ${row.enclosure}` : row.fabric;
}

function order() {
  const [name, direction] = view.sort.split("-"), column = COLUMNS.find((each) => each.name === name);
  if (!column) return null;
  const of = name === "since" ? (row) => row.device.since : column.of, sign = direction === "desc" ? -1 : 1;
  // Empty texts are last in both directions.
  return (left, right) => { const a = of(left), b = of(right); return !a - !b || sign * byName(a, b) || byName(left.key, right.key); };
}

function list() {
  // A quoted word is a whole field.
  const words = [...view.q.toLowerCase().matchAll(/"([^"]*)"|\S+/g)].map((match) => match[1] === undefined ? match[0] : `\n${match[1]}\n`);
  const found = [...cluster.rows.values()].filter((row) => words.every((word) => text(row).includes(word)));
  const counts = count(found);
  const groups = new Map();
  let total = 0;
  for (const row of found) {
    if (view.show !== "all" && row.category !== view.show) continue;
    const name = group(row), listed = groups.get(name);
    if (listed) listed.push(row); else groups.set(name, [row]);
    total++;
  }
  const compare = order();
  items = [];
  for (const name of [...groups.keys()].sort((left, right) => left.startsWith("attached to no") - right.startsWith("attached to no") || byName(left, right))) {
    const rows = groups.get(name);
    if (compare) rows.sort(compare);
    const isOpen = !closed.has(`${view.group} ${name}`);
    if (view.group !== "none") items.push({name: `group ${name}`, label: name, counts: counted(rows), isOpen});
    if (isOpen || view.group === "none") rows.forEach((row, index) => items.push({name: `row ${row.key}`, row, place: index + 1, of: rows.length}));
  }
  places = new Map(items.map((item, index) => [item.name, index]));
  set(element("count"), cluster.isPartial ? "reading …" : cluster.isRead ? total === cluster.rows.size ? `${total.toLocaleString("en")} devices` : `${total.toLocaleString("en")} of ${cluster.rows.size.toLocaleString("en")} devices` : "");
  replace(element("show"), ["all", "used", "moving", "failed", "blocked", "kept", "free"].filter((name) => name === "all" || counts[name] || name === view.show).map((name) =>
    make("a", {href: routes.devices({...view, show: name === "all" ? "" : name, group: view.group === "enclosure" ? "" : view.group}), "aria-current": name === view.show ? "true" : "", class: name},
      name === "all" ? "all" : WORDS[name], make("b", {}, String(counts[name])))));
  hits(words);
  grid.setAttribute("aria-rowcount", items.length + 1);
  if (!places.has(chosen)) chosen = "";
}

// Other objects that the words name.
function hits(words) {
  const found = new Map();
  if (words.length) {
    const matches = (name) => words.every((word) => `\n${name.toLowerCase()}\n`.includes(word));
    const add = (kind, name, target) => { if (found.size < HITS && matches(name)) found.set(`${kind} ${name}`, target); };
    for (const fabric of cluster.fabrics) add("fabric", fabric.name, routes.fabric(fabric.name));
    for (const claim of cluster.claims) {
      add("claim", `${claim.namespace}/${claim.name}`, routes.claim(claim.namespace, claim.name));
      for (const pod of claim.pods) add("pod", `${claim.namespace}/${pod}`, routes.pod(claim.namespace, pod));
    }
    for (const {device} of cluster.rows.values()) {
      if (found.size >= HITS) break;
      if (device.node) add("node", device.node, routes.node(device.node));
      for (const claim of device.claims) {
        add("claim", `${claim.namespace}/${claim.name}`, routes.claim(claim.namespace, claim.name));
        for (const pod of claim.pods) add("pod", `${claim.namespace}/${pod}`, routes.pod(claim.namespace, pod));
      }
    }
  }
  replace(element("hits"), [...found].map(([name, target]) => link(target, name)));
}

function counted(rows) {
  const states = {};
  for (const row of rows) states[row.device.state] = (states[row.device.state] || 0) + 1;
  return Object.keys(states).sort().map((state) => `${states[state]} ${state}`).join(", ");
}

function fit() {
  if (measured !== cluster.version) {
    measured = cluster.version;
    const style = getComputedStyle(grid);
    canvas.font = `600 ${style.fontSize} ${style.fontFamily}`;
    for (const column of COLUMNS) {
      const before = column.longest;
      if (column.name === "since") column.longest = "59 min";
      else for (const row of cluster.rows.values()) { const own = column.of(row); if (own) column.hasText = true; if (own.length > column.longest.length) column.longest = own; }
      // An icon and the group's indentation take room, too.
      if (before !== column.longest || !column.needed) column.needed = Math.min(column.most, Math.ceil(Math.max(canvas.measureText(column.longest).width, canvas.measureText(column.title).width + 14)) + (column.name === "state" ? 40 : column.name === "device" ? 26 : 6));
    }
  }
  const width = grid.clientWidth - 24, gap = 16;
  const used = new Set(COLUMNS.filter((column) => column.importance < 2 || column.name === "since" || column.hasText));
  const wasFolded = isFolded;
  isFolded = grid.clientWidth < NARROW && used.delete(WHY);
  let room = width;
  const kept = new Set();
  for (const column of [...used].sort((a, b) => a.importance - b.importance)) {
    const needed = column.name === "why" ? Math.min(column.needed, Math.max(180, width / 4)) : column.needed;
    if (needed + (kept.size ? gap : 0) > room && kept.size > 1) continue;
    kept.add(column);
    column.width = needed;
    room -= needed + (kept.size > 1 ? gap : 0);
  }
  const now = COLUMNS.filter((column) => kept.has(column));
  const last = now.at(-1);
  grid.style.setProperty("--columns", now.map((column) => column === last ? `minmax(0, 1fr)` : `${column.width}px`).join(" "));
  if (wasFolded !== isFolded || now.map((column) => column.name).join() !== shown.map((column) => column.name).join()) {
    shown = now;
    for (const line of drawn.values()) line.remove();
    drawn.clear();
    heads();
  }
  grid.setAttribute("aria-colcount", shown.length + isFolded);
  lay(width - 20);
}

// Places the items below each other; a reason of several lines needs more room.
function lay(width) {
  const {fontFamily} = getComputedStyle(grid);
  canvas.font = `13px ${fontFamily}`;
  tops = [0];
  for (const item of items) {
    const reason = isFolded && item.row ? WHY.of(item.row) : "";
    // Words do not fill a line.
    const lines = reason && Math.min(LINES, Math.ceil(canvas.measureText(reason).width * 1.1 / width));
    tops.push(tops.at(-1) + ROW + (lines ? lines * LINE + FOOT : 0));
  }
  body.style.height = `${tops.at(-1)}px`;
}

// The item at a height.
function at(height) {
  let low = 0, high = items.length;
  while (low < high) { const middle = (low + high) >> 1; if (tops[middle + 1] <= height) low = middle + 1; else high = middle; }
  return low;
}

function heads() {
  const [name, direction] = view.sort.split("-");
  replace(element("head"), shown.map((column, index) => make("div", {role: "columnheader", "aria-colindex": index + 1,
    "aria-sort": column.name !== name ? "none" : direction === "desc" ? "descending" : "ascending"},
    make("button", {type: "button", "data-sort": column.name, title: `Sort by ${column.title}`}, column.title, make("i", {"aria-hidden": "true"}, column.name !== name ? "" : direction === "desc" ? "▾" : "▴")))).concat(
    isFolded ? make("div", {role: "columnheader", "aria-colindex": shown.length + 1, class: "unseen"}, WHY.title) : []));
}

export function drawTable(isStale) {
  if (isStale) { list(); fit(); heads(); }
  const first = Math.max(0, at(grid.scrollTop) - MORE);
  const last = Math.min(items.length, at(grid.scrollTop + grid.clientHeight) + 1 + MORE);
  const kept = new Set();
  for (let index = first; index < last; index++) {
    const item = items[index];
    kept.add(item.name);
    let line = drawn.get(item.name);
    if (!line) {
      line = make("div", {id: `row-${++elements}`, role: "row", "data-name": item.name});
      const wanted = item.row ? shown.length : 1;
      for (let column = 0; column < wanted; column++)
        line.append(make("div", item.row ? {role: "gridcell", "aria-colindex": column + 1, class: shown[column].name} : {role: "gridcell", "aria-colspan": shown.length + isFolded}));
      if (item.row && isFolded) line.append(make("div", {role: "gridcell", "aria-colindex": shown.length + 1, class: "why below"}));
      drawn.set(item.name, line);
    }
    fill(line, item, index);
  }
  for (const [name, line] of drawn) if (!kept.has(name)) { line.remove(); drawn.delete(name); }
  // Screen readers need the order of the document.
  let before = body.firstElementChild;
  for (let index = first; index < last; index++) {
    const line = drawn.get(items[index].name);
    if (line === before) before = before.nextElementSibling; else body.insertBefore(line, before);
  }
  grid.classList.toggle("nothing", cluster.isRead && !items.length);
  // For bench/ui.py.
  if ((cluster.isRead || items.length) && !performance.getEntriesByName("rows").length) performance.mark("rows");
  if (cluster.isRead && !performance.getEntriesByName("all-rows").length) performance.mark("all-rows");
  const cursor = drawn.get(chosen);
  if (cursor) grid.setAttribute("aria-activedescendant", cursor.id); else grid.removeAttribute("aria-activedescendant");
}

function cell(column, row) {
  const own = column.of(row);
  if (column.name === "state") return chip(row.category, own, row.waits);
  if (column.name === "device") return link(routes.device(row), own, {tabindex: "-1"});
  if (column.name === "node" && own) return link(routes.node(own), own, {tabindex: "-1"});
  if (column.name === "claim" && row.device.claims.length === 1) return link(routes.claim(row.device.claims[0].namespace, row.device.claims[0].name), own, {tabindex: "-1"});
  if (column.name === "pods" && row.device.claims.length === 1 && row.device.claims[0].pods.length === 1) return link(routes.pod(row.device.claims[0].namespace, own), own, {tabindex: "-1"});
  if (column.name === "since") return own ? make("time", {datetime: row.device.since, title: moment(row.device.since), "data-before": ""}, own) : "";
  return own;
}

function fill(line, item, index) {
  line.style.transform = `translateY(${tops[index]}px)`;
  line.style.height = `${tops[index + 1] - tops[index]}px`;
  const marks = {"aria-rowindex": index + 2, "aria-level": item.row && view.group !== "none" ? 2 : 1, "aria-selected": item.name === chosen};
  if (item.row) Object.assign(marks, {"aria-posinset": item.place, "aria-setsize": item.of});
  else marks["aria-expanded"] = item.isOpen;
  for (const [name, value] of Object.entries(marks)) if (line.getAttribute(name) !== String(value)) line.setAttribute(name, value);
  if (!item.row) {
    const label = `${item.label}|${item.counts}`;
    if (line.dataset.label === label) return;
    line.dataset.label = label;
    line.className = "group";
    line.firstElementChild.replaceChildren(make("b", {}, item.label), make("span", {class: "dim"}, item.counts));
    return;
  }
  (isFolded ? [...shown, WHY] : shown).forEach((column, place) => {
    const holder = line.children[place], own = column.of(item.row), key = column.name === "state" ? `${own} ${item.row.category} ${item.row.waits}` : own;
    if (holder.dataset.text === key) return;
    holder.dataset.text = key;
    if (column.name !== "since") holder.title = own;
    holder.classList.toggle("ill", column.name === "health" && item.row.isIll);
    const content = cell(column, item.row);
    holder.replaceChildren(...content === "" ? [] : [content]);
  });
}

export function settle(query) {
  const before = JSON.stringify(view);
  Object.assign(view, {q: query.get("q") || "", group: query.get("group") || "enclosure", show: query.get("show") || "all", sort: query.get("sort") || ""});
  element("group").value = view.group;
  if (JSON.stringify(view) !== before) grid.scrollTop = 0;
}

export const target = (changes) => {
  const next = {...view, ...changes};
  return routes.devices({q: next.q, group: next.group === "enclosure" ? "" : next.group, show: next.show === "all" ? "" : next.show, sort: next.sort});
};

function pick(index) {
  if (!items.length) return;
  index = Math.max(0, Math.min(index, items.length - 1));
  chosen = items[index].name;
  const top = tops[index], height = grid.clientHeight - ROW - (tops[index + 1] - top);
  if (top < grid.scrollTop) grid.scrollTop = top;
  else if (top > grid.scrollTop + height) grid.scrollTop = top - height;
  drawTable(false);
}

function toggle(item, isOpen) {
  const name = `${view.group} ${item.label}`;
  if (isOpen) closed.delete(name); else closed.add(name);
  drawTable(true);
}

grid.addEventListener("keydown", (press) => {
  const now = places.get(chosen) ?? -1, item = items[now];
  const page = Math.max(1, Math.floor(grid.clientHeight / ROW) - 2);
  const to = {ArrowDown: now + 1, ArrowUp: now - 1, PageDown: now + page, PageUp: now - page, Home: 0, End: items.length - 1}[press.key];
  if (press.ctrlKey || press.altKey || press.metaKey || press.target.closest("button")) return;
  if (to !== undefined) pick(to);
  else if (item && press.key === "ArrowRight" && !item.row) toggle(item, true);
  else if (item && press.key === "ArrowLeft" && !item.row) toggle(item, false);
  else if (item && press.key === "ArrowLeft") pick(now - item.place);
  else if (item && (press.key === "Enter" || press.key === " ")) { if (item.row) location.hash = routes.device(item.row); else toggle(item, !item.isOpen); }
  else return;
  press.preventDefault();
});
grid.addEventListener("focus", () => { if (!chosen) pick(at(grid.scrollTop)); });
grid.addEventListener("scroll", () => requestAnimationFrame(() => drawTable(false)), {passive: true});
body.addEventListener("click", (press) => {
  if (press.target.closest("a")) return;
  const line = press.target.closest("[role=row]"), index = line ? places.get(line.dataset.name) : undefined;
  if (index === undefined) return;
  pick(index);
  const item = items[index];
  if (item.row) location.hash = routes.device(item.row); else toggle(item, !item.isOpen);
});
element("head").addEventListener("click", (press) => {
  const name = press.target.closest("[data-sort]")?.dataset.sort;
  if (name) location.hash = target({sort: view.sort === name ? `${name}-desc` : view.sort === `${name}-desc` ? "" : name});
});
element("group").addEventListener("change", (change) => { location.hash = target({group: change.target.value}); });
new ResizeObserver(() => { if (grid.clientWidth) { fit(); drawTable(false); } }).observe(grid);
