// The cluster as the server sent it, and what is derived from it.

import {make} from "./dom.js";

export const byName = new Intl.Collator("en", {numeric: true}).compare;

export const WORDS = {used: "in use", free: "free", moving: "moving", kept: "kept", blocked: "tainted", failed: "failed"};
export const GLYPHS = {used: "●", free: "○", moving: "◐", kept: "◉", blocked: "▲", failed: "✕", good: "✓", wait: "…", bad: "✕", warn: "!"};
export const STEPS = {Allocated: [1, 4], Pending: [2, 4], Attached: [3, 4], Ready: [4, 4], Releasing: [1, 2], Released: [2, 2]};

export const cluster = {rows: new Map(), about: {}, fabrics: [], claims: [], waiting: 0, unused: 0, events: [], unread: [], stale: {kinds: [], since: ""}, isRead: false, isPartial: false, isLost: false, version: 0};

export const route = (kind, ...parts) => `#/${[kind, ...parts].map(encodeURIComponent).join("/")}`;
export const routes = {
  device: (row) => route("device", row.device.pool, row.device.name),
  claim: (namespace, name) => route("claim", namespace, name),
  pod: (namespace, name) => route("pod", namespace, name),
  node: (name) => route("node", name),
  fabric: (name) => route("fabric", name),
  // Devices with these whole fields.
  exact: (...fields) => routes.devices({q: fields.filter(Boolean).map((field) => `"${field}"`).join(" ")}),
  devices: (options = {}) => {
    const query = new URLSearchParams(Object.entries(options).filter(([, value]) => value)).toString();
    return `#/devices${query && "?" + query}`;
  },
};

export function link(target, text, attributes = {}) { return make("a", {href: target, ...attributes}, text); }

export function chip(category, text, title = "") {
  return make("span", {class: `chip ${category}`, title}, make("i", {"aria-hidden": "true"}, GLYPHS[category] || "●"), make("span", {}, text));
}

export function step(state) {
  const place = STEPS[state];
  return place && state !== "Ready" ? ` ${place[0]}/${place[1]}` : "";
}

export const stateChip = (row) => chip(row.category, row.device.state + step(row.device.state), row.waits);

export function fabricChip(fabric) {
  if (cluster.isLost) return chip("wait", `was ${fabric.state}`, fabric.message);
  const category = fabric.state === "Connected" ? "good" : ["Pending", "Deleting", "Unknown"].includes(fabric.state) ? "wait" : ["Degraded", "Blocked"].includes(fabric.state) ? "warn" : "bad";
  return chip(category, fabric.state, fabric.message);
}

function take(row) {
  const device = row.device;
  row.key = `${device.pool} ${device.name}`;
  row.taints = device.taints.map((taint) => `${taint.key}${taint.value && "=" + taint.value}:${taint.effect}`);
  row.waits = device.waitsFor || device.claims.map((claim) => claim.waitsFor).filter(Boolean).join("; ");
  row.why = device.state === "Failed" || !row.waits ? row.waits : `waits for ${row.waits}`;
  row.isIll = device.health === "Unhealthy";
  row.place = row.fabric ? `${row.fabric}${row.enclosure && " / " + row.enclosure}` : device.node ? `node ${device.node}` : "";
  cluster.rows.set(row.key, row);
}

// The text that the search looks at; made at the first search.
export function text(row) {
  const device = row.device;
  row.text ??= ["",
    row.fabric, row.enclosure, device.name, device.id, device.deviceClass, device.model, device.serial, device.state, device.node, device.host,
    device.port, device.slot, device.health, device.pool, row.waits, ...row.taints, WORDS[row.category],
    ...device.claims.flatMap((claim) => [`${claim.namespace}/${claim.name}`, ...claim.pods]), "",
  ].join("\n").toLowerCase();
  return row.text;
}

// Returns the news for screen readers.
export function update(change) {
  const {rows} = cluster, news = [];
  // All rows come in order, in one or two parts.
  const isWhole = change.isWhole || cluster.isPartial;
  if (change.isWhole) rows.clear();
  let isNew = false;
  for (const row of change.rows) {
    const old = rows.get(`${row.device.pool} ${row.device.name}`);
    isNew ||= !old;
    if (!isWhole && (!old || old.device.state !== row.device.state)) news.push(`${row.device.name} is ${row.device.state}`);
    take(row);
  }
  for (const key of change.gone) {
    rows.delete(key);
    news.push(`${key.split(" ")[1]} is gone`);
  }
  if (isNew && !isWhole) {
    const sorted = [...rows.values()].sort((left, right) => byName(left.key, right.key));
    rows.clear();
    for (const row of sorted) rows.set(row.key, row);
  }
  for (const name of ["about", "fabrics", "claims", "waiting", "unused", "events", "unread", "stale"]) cluster[name] = change[name] ?? cluster[name];
  cluster.isPartial = change.isPartial;
  cluster.isRead ||= !change.isPartial;
  cluster.version++;
  return news;
}

export const newCounts = () => ({all: 0, used: 0, free: 0, moving: 0, kept: 0, blocked: 0, failed: 0});

export function count(rows) {
  const counts = newCounts();
  for (const row of rows) { counts.all++; counts[row.category]++; }
  return counts;
}

let summed = null;

// Counts and groups of the whole cluster; computed once for each version.
export function summary() {
  if (summed?.version === cluster.version) return summed;
  const all = newCounts(), classes = new Map(), fabrics = new Map(), hosts = new Map(), failed = [], moving = [], ill = [], taints = new Map();
  const entry = (map, name, create) => { let found = map.get(name); if (!found) map.set(name, found = create()); return found; };
  for (const row of cluster.rows.values()) {
    const {device, category} = row;
    const byClass = entry(classes, device.deviceClass || "other", () => ({counts: newCounts(), models: new Map()}));
    const byModel = entry(byClass.models, device.model || "unknown model", newCounts);
    const byFabric = entry(fabrics, row.fabric, () => ({counts: newCounts(), enclosures: new Map()}));
    for (const counts of [all, byClass.counts, byModel, byFabric.counts]) { counts.all++; counts[category]++; }
    entry(byFabric.enclosures, row.fabric ? row.enclosure : device.node, () => []).push(row);
    if (device.host) entry(entry(hosts, row.fabric, () => new Map()), device.host, () => []).push(row);
    if (category === "failed") failed.push(row);
    if (category === "moving") moving.push(row);
    if (row.isIll) ill.push(row);
    for (const taint of row.taints) entry(taints, taint, () => []).push(row);
  }
  summed = {version: cluster.version, all, classes, fabrics, hosts, failed, moving, ill, taints};
  return summed;
}

// A device that its manager refuses, or whose step takes too long.
export const isHeld = ({device}) => device.refusal || device.overdueAt && Date.parse(device.overdueAt) < Date.now();

export const hasTrouble = () => cluster.unread.length || cluster.fabrics.some((fabric) => !["Connected", "Pending"].includes(fabric.state)) || summary().failed.length || summary().ill.length || summary().moving.some(isHeld) || cluster.waiting;
