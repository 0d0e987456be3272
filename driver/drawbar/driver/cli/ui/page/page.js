"use strict";
// Shows what /updates sends. Only rows that can be seen are in the document; all text goes in as text, never as markup.

const ROW = 28; // pixels, as in page.css
const MORE = 6; // rows above and below what can be seen
const NEWS_PAUSE = 3000; // milliseconds between two announcements
const SETTLED = new Set(["Free", "InUse", "Held", "Ready", "Idle"]);
const STEPS = {
  Allocated: [1, 4], Pending: [2, 4], Attached: [3, 4], Ready: [4, 4], Releasing: [1, 2], Released: [2, 2],
};
const STYLES = {
  Ready: "good", InUse: "good", Connected: "good", Healthy: "good", Held: "held", Idle: "held", Free: "dim",
  Failed: "bad", Missing: "bad", Unhealthy: "bad", Unknown: "dim",
};
const COLUMNS = ["Device", "State", "Since", "Class, model", "Health", "Taints", "Node, host", "Claim, pods", "Waits for"];

const element = (id) => document.getElementById(id);
const grid = element("devices"), body = element("rows"), search = element("search"), detail = element("detail");

const rows = new Map(); // by key: {fabric, enclosure, device, key, and what `take` makes of them}
let fabrics = [], claims = [], events = [], unread = [];
let view = "enclosures";
const closed = new Set(); // names of groups
let items = []; // what is listed: groups and rows
let places = new Map(); // by name of an item: its index in items
let chosen = ""; // name of the item of the cursor
let opened = ""; // key of the device that is shown alone
const drawn = new Map(); // by name of an item: its element
let elements = 0;
let isStale = false, isPlanned = false, isRead = false;

function make(tag, text = "", style = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (style) made.className = style;
  return made;
}

function age(stamp) {
  const seconds = Math.max(0, Math.floor((Date.now() - Date.parse(stamp)) / 1000));
  if (Number.isNaN(seconds)) return stamp ? "?" : "";
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["m", 60]])
    if (seconds >= 2 * length) return `${Math.floor(seconds / length)}${unit}`;
  return `${seconds}s`;
}

// Rows

const byName = new Intl.Collator("en", {numeric: true}).compare;

function take(row) {
  const device = row.device;
  row.key = `${device.pool} ${device.name}`;
  row.host = device.host ? `${device.node || "no node"}, host ${device.host}` : device.node;
  row.taints = device.taints.map((taint) => `${taint.key}${taint.value && "=" + taint.value}:${taint.effect}`);
  row.users = device.claims.map((claim) => `${claim.namespace}/${claim.name}${claim.pods.length ? ": " + claim.pods.join(", ") : ""}`);
  row.waits = device.waitsFor || device.claims.map((claim) => claim.waitsFor).filter(Boolean).join("; ");
  row.isWaiting = !SETTLED.has(device.state) || row.waits !== "";
  rows.set(row.key, row);
}

// What the search looks at; made at the first search.
function text(row) {
  const device = row.device;
  row.text ??= [
    row.fabric, row.enclosure, device.name, device.id, device.deviceClass, device.model, device.serial, device.state, row.host,
    device.port, device.slot, device.health, row.waits, ...row.taints, ...row.users,
  ].join("\n").toLowerCase();
  return row.text;
}

function group(row) {
  const device = row.device;
  if (view === "hosts") {
    if (!device.host) return device.node ? `node ${device.node}` : "at no host";
    return `host ${device.host}, node ${device.node || "none"}`;
  }
  if (view === "waiting") return device.state;
  if (!row.fabric) return `own devices of node ${device.node || "?"}`;
  return `fabric ${row.fabric}` + (row.enclosure ? `, enclosure ${row.enclosure}` : "");
}

function order(left, right) {
  if (view === "hosts") return byName(left.device.port, right.device.port) || byName(left.device.slot, right.device.slot) || byName(left.key, right.key);
  // What has waited longest is first.
  if (view === "waiting" && left.device.since !== right.device.since) return left.device.since < right.device.since ? -1 : 1;
  return 0; // As they came, by pool and name.
}

function list() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const groups = new Map();
  let count = 0;
  for (const row of rows.values()) {
    if (view === "waiting" && !row.isWaiting) continue;
    if (!words.every((word) => text(row).includes(word))) continue;
    const name = group(row);
    const listed = groups.get(name);
    if (listed) listed.push(row); else groups.set(name, [row]);
    count++;
  }
  items = [];
  for (const name of [...groups.keys()].sort((left, right) => (left === "at no host") - (right === "at no host") || byName(left, right))) {
    const listed = groups.get(name);
    if (view !== "enclosures") listed.sort(order);
    const isOpen = !closed.has(`${view} ${name}`);
    items.push({name: `group ${name}`, label: name, counts: counts(listed), isOpen});
    if (isOpen) listed.forEach((row, index) => items.push({name: `row ${row.key}`, row, place: index + 1, of: listed.length}));
  }
  places = new Map(items.map((item, index) => [item.name, index]));
  const of = words.length || view === "waiting" ? ` of ${rows.size}` : "";
  set(element("count"), isRead ? `${count}${of} devices${view === "waiting" ? " wait" : ""}` : "");
  grid.setAttribute("aria-rowcount", items.length + 1);
  body.style.height = `${items.length * ROW}px`;
  if (!places.has(chosen)) chosen = "";
}

function counts(listed) {
  const states = {};
  for (const row of listed) states[row.device.state] = (states[row.device.state] || 0) + 1;
  const parts = Object.keys(states).sort().map((state) => `${states[state]} ${state}`);
  return `${listed.length} device${listed.length === 1 ? "" : "s"}: ${parts.join(", ")}`;
}

// Drawing

function set(target, text) { if (target.textContent !== text) target.textContent = text; }

function step(state) {
  const place = STEPS[state];
  return place && state !== "Ready" ? ` ${place[0]}/${place[1]}` : "";
}

function cells(row) {
  const device = row.device;
  const plug = [device.port && `port ${device.port}`, device.slot && `slot ${device.slot}`].filter(Boolean).join(" ");
  return [
    [device.name], [device.state + step(device.state), STYLES[device.state] || "wait"], [age(device.since), "dim"],
    [[device.deviceClass, device.model].filter(Boolean).join(" ")], [device.health, STYLES[device.health] || ""],
    [row.taints.join(" "), "wait"], [[row.host, plug].filter(Boolean).join(", ")], [row.users.join("; ")], [row.waits, "wait"],
  ];
}

function draw() {
  isPlanned = false;
  if (isStale) { list(); facts(); isStale = false; }
  const first = Math.max(0, Math.floor(grid.scrollTop / ROW) - MORE);
  const last = Math.min(items.length, Math.ceil((grid.scrollTop + grid.clientHeight) / ROW) + MORE);
  const kept = new Set();
  for (let index = first; index < last; index++) {
    const item = items[index];
    kept.add(item.name);
    let line = drawn.get(item.name);
    if (!line) {
      line = make("div");
      line.id = `row-${++elements}`;
      line.setAttribute("role", "row");
      line.dataset.name = item.name;
      const wanted = item.row ? COLUMNS.length : 1;
      for (let column = 0; column < wanted; column++) {
        const cell = line.appendChild(make("div"));
        cell.setAttribute("role", "gridcell");
        if (item.row) cell.setAttribute("aria-colindex", column + 1);
        else cell.setAttribute("aria-colspan", COLUMNS.length);
      }
      drawn.set(item.name, line);
    }
    fill(line, item, index);
  }
  for (const [name, line] of drawn) if (!kept.has(name)) { line.remove(); drawn.delete(name); }
  // In the document they stand as on the screen, for screen readers.
  let before = body.firstElementChild;
  for (let index = first; index < last; index++) {
    const line = drawn.get(items[index].name);
    if (line === before) before = before.nextElementSibling; else body.insertBefore(line, before);
  }
  // For bench/ui.py.
  if (isRead && !performance.getEntriesByName("rows").length) performance.mark("rows");
  const cursor = drawn.get(chosen);
  if (cursor) grid.setAttribute("aria-activedescendant", cursor.id); else grid.removeAttribute("aria-activedescendant");
}

function fill(line, item, index) {
  line.style.transform = `translateY(${index * ROW}px)`;
  const marks = {"aria-rowindex": index + 2, "aria-level": item.row ? 2 : 1, "aria-selected": item.name === chosen};
  if (item.row) Object.assign(marks, {"aria-posinset": item.place, "aria-setsize": item.of});
  else marks["aria-expanded"] = item.isOpen;
  for (const [name, value] of Object.entries(marks)) if (line.getAttribute(name) !== String(value)) line.setAttribute(name, value);
  const contents = item.row ? cells(item.row) : [[`${item.label}  ${item.counts}`]];
  contents.forEach(([text, style = ""], column) => {
    const cell = line.children[column];
    set(cell, text);
    if (cell.className !== style) cell.className = style;
    if (cell.title !== text) cell.title = text;
  });
}

function facts() {
  const states = new Map();
  for (const row of rows.values()) {
    const counted = states.get(row.fabric) || {all: 0, Ready: 0, waiting: 0, Failed: 0, Free: 0};
    states.set(row.fabric, counted);
    counted.all++;
    if (row.device.state in counted) counted[row.device.state]++;
    else if (!SETTLED.has(row.device.state)) counted.waiting++;
  }
  replace(element("fabrics").tBodies[0], fabrics.map((fabric) => {
    const counted = states.get(fabric.name) || {all: 0, Ready: 0, waiting: 0, Failed: 0, Free: 0};
    const line = make("tr");
    const name = line.appendChild(make("th", fabric.name));
    name.scope = "row";
    line.append(
      make("td", fabric.state, STYLES[fabric.state] || "wait"), make("td", age(fabric.since), "dim"),
      ...[counted.all, counted.Ready, counted.waiting, counted.Failed, counted.Free].map((number) => make("td", String(number))),
      make("td", fabric.message, "wait"));
    return line;
  }));
  replace(element("claims"), claims.length ? claims.map((claim) => {
    const line = make("li", `${claim.namespace}/${claim.name} `);
    line.append(make("time", claim.since ? `for ${age(claim.since)}` : ""));
    return line;
  }) : [make("li", isRead ? "none" : "", "dim")]);
  replace(element("events"), events.length ? events.map(event) : [make("li", isRead ? "none within the API server's time to live" : "", "dim")]);
  replace(element("unread"), unread.map((sentence) => make("p", sentence)));
  show();
}

function event(entry) {
  const line = make("li", "", entry.type === "Warning" ? "warning" : "");
  const time = line.appendChild(make("time", age(entry.at)));
  time.dateTime = entry.at;
  time.title = entry.at;
  const where = entry.namespace ? `${entry.namespace}/${entry.name}` : entry.name;
  line.append(" ", make("b", entry.reason, entry.type === "Warning" ? "bad" : "good"), ` ${entry.kind} ${where}: ${entry.note}`);
  return line;
}

// Leaves what is equal in the document, so that neither focus nor reading place is lost.
function replace(parent, lines) {
  lines.forEach((line, index) => {
    const old = parent.children[index];
    if (!old) parent.append(line); else if (!old.isEqualNode(line)) old.replaceWith(line);
  });
  while (parent.children.length > lines.length) parent.lastElementChild.remove();
}

function show() {
  const row = rows.get(opened);
  detail.hidden = !opened;
  if (!opened) return;
  if (!row) { set(element("detail-title"), `${opened.split(" ")[1]} is gone`); replace(detail.querySelector("dl"), []); return; }
  const device = row.device;
  set(element("detail-title"), `Device ${device.name}`);
  const named = [
    ["State", device.state + step(device.state) + (device.since ? `, for ${age(device.since)}` : "")], ["Waits for", row.waits],
    ["Fabric", row.fabric], ["Enclosure", row.enclosure], ["Pool", device.pool], ["Id", device.id], ["Class", device.deviceClass],
    ["Model", device.model], ["Serial", device.serial], ["Health", [device.health, device.healthMessage].filter(Boolean).join(": ")],
    ["Taints", row.taints.join("\n")], ["Node", device.node], ["Host", device.host], ["Port", device.port], ["Slot", device.slot],
    ["Attachment", device.attachment],
    ...device.claims.map((claim) => ["Claim", `${claim.namespace}/${claim.name}, ${claim.state}`]),
    ...device.claims.flatMap((claim) => claim.pods.map((pod) => ["Pod", `${claim.namespace}/${pod}`])),
  ];
  replace(detail.querySelector("dl"), named.filter(([, text]) => text).flatMap(([name, text]) => [make("dt", name), make("dd", text)]));
  const names = new Set([device.attachment, ...device.claims.flatMap((claim) => [claim.name, ...claim.pods])].filter(Boolean));
  const about = events.filter((entry) => names.has(entry.name));
  replace(element("about"), about.length ? about.map(event) : [make("li", "none", "dim")]);
}

function plan(stale) {
  isStale = isStale || stale;
  if (!isPlanned) { isPlanned = true; requestAnimationFrame(draw); }
}

// Updates

let news = [], isAnnouncing = false;

function announce() {
  if (isAnnouncing || !news.length) return;
  isAnnouncing = true;
  const text = news.length > 3 ? `${news.length} devices changed` : news.join("; ");
  news = [];
  set(element("news"), text);
  setTimeout(() => { isAnnouncing = false; announce(); }, NEWS_PAUSE);
}

function update(change) {
  if (change.isWhole) rows.clear();
  let isNew = false;
  for (const row of change.rows) {
    const old = rows.get(`${row.device.pool} ${row.device.name}`);
    isNew = isNew || !old;
    if (!change.isWhole && (!old || old.device.state !== row.device.state)) news.push(`${row.device.name} is ${row.device.state}`);
    take(row);
  }
  for (const key of change.gone) {
    rows.delete(key);
    news.push(`${key.split(" ")[1]} is gone`);
  }
  if (isNew) {
    const sorted = [...rows.values()].sort((left, right) => byName(left.key, right.key));
    rows.clear();
    for (const row of sorted) rows.set(row.key, row);
  }
  fabrics = change.fabrics ?? fabrics;
  claims = change.claims ?? claims;
  events = change.events ?? events;
  unread = change.unread ?? unread;
  isRead = true;
  plan(true);
  announce();
}

const source = new EventSource("updates");
source.onmessage = (message) => update(JSON.parse(message.data));
source.onopen = () => { set(element("connection"), "live"); element("connection").className = ""; };
source.onerror = () => {
  set(element("connection"), "not connected: this is what was shown last; start drawbar ui again if it has ended");
  element("connection").className = "lost";
};

// Keys and pointer

function choose(index) {
  if (!items.length) return;
  index = Math.max(0, Math.min(index, items.length - 1));
  chosen = items[index].name;
  const top = index * ROW, height = grid.clientHeight - 2 * ROW;
  if (top < grid.scrollTop) grid.scrollTop = top;
  else if (top > grid.scrollTop + height) grid.scrollTop = top - height;
  draw();
}

function toggle(item, isOpen) {
  const name = `${view} ${item.label}`;
  if (isOpen) closed.delete(name); else closed.add(name);
  list();
  draw();
}

function open(key) {
  opened = key;
  show();
  if (opened) detail.focus();
}

function close() {
  open("");
  grid.focus();
}

grid.addEventListener("keydown", (press) => {
  const at = places.get(chosen) ?? -1, item = items[at];
  const page = Math.max(1, Math.floor(grid.clientHeight / ROW) - 2);
  const to = {ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: items.length - 1}[press.key];
  if (press.ctrlKey || press.altKey || press.metaKey) return;
  if (to !== undefined) choose(to);
  else if (item && press.key === "ArrowRight" && !item.row) toggle(item, true);
  else if (item && press.key === "ArrowLeft" && !item.row) toggle(item, false);
  else if (item && press.key === "ArrowLeft") choose(at - item.place);
  else if (item && (press.key === "Enter" || press.key === " ")) { if (item.row) open(item.row.key); else toggle(item, !item.isOpen); }
  else return;
  press.preventDefault();
});
grid.addEventListener("focus", () => { if (!chosen) choose(Math.round(grid.scrollTop / ROW)); });
grid.addEventListener("scroll", () => plan(false), {passive: true});
body.addEventListener("click", (press) => {
  const line = press.target.closest("[role=row]");
  const index = line ? places.get(line.dataset.name) : undefined;
  if (index === undefined) return;
  choose(index);
  const item = items[index];
  if (item.row) { opened = item.row.key; show(); } else toggle(item, !item.isOpen);
});
element("close").addEventListener("click", close);
document.addEventListener("keydown", (press) => {
  if (press.key === "/" && press.target !== search && !press.ctrlKey && !press.metaKey) { search.focus(); search.select(); press.preventDefault(); }
  else if (press.key === "Escape" && press.target === search) { search.value = ""; grid.scrollTop = 0; plan(true); }
  else if (press.key === "Escape" && opened) close();
});
search.addEventListener("input", () => { grid.scrollTop = 0; plan(true); });
for (const radio of document.getElementsByName("view"))
  radio.addEventListener("change", () => { view = radio.value; grid.scrollTop = 0; plan(true); });
new ResizeObserver(() => plan(false)).observe(grid);
setInterval(() => { plan(false); facts(); }, 5000); // Ages.

COLUMNS.forEach((name, index) => {
  const cell = element("head").appendChild(make("div", name));
  cell.setAttribute("role", "columnheader");
  cell.setAttribute("aria-colindex", index + 1);
});
view = document.querySelector("[name=view]:checked").value;
