// The overview: tiles, attention, changes under way and the latest Events.

import {breakable, element, make, replace, time} from "./dom.js";
import {byName, chip, cluster, hasTrouble, isHeld, link, routes, step, summary} from "./store.js";

const MOST = 6; // entries of one kind
const LATEST = 12;
const MODELS = 3;
const NO_MODEL = "unknown model";
const NAMES = {gpu: "GPU", nvme: "NVMe", "cxl-memory": "CXL memory", fpga: "FPGA", nic: "NIC", accelerator: "Accelerator", other: "Other"};

export const number = (count) => count.toLocaleString("en");
export const load = (counts, between = " / ") => `${number(counts.used + counts.kept)}${between}${number(counts.all)}`;
export const className = (name) => NAMES[name] || name;

export function meter(counts, label) {
  const part = (category) => {
    if (!counts[category]) return "";
    const made = make("i", {class: category});
    made.style.width = `${(100 * counts[category] / counts.all).toFixed(2)}%`;
    return made;
  };
  return make("div", {class: "meter", role: "img", "aria-label": label}, ["used", "kept", "moving", "blocked", "failed"].map(part));
}

export function noted(counts) {
  const parts = [`${number(counts.free)} free`];
  for (const [category, word] of [["moving", "moving"], ["kept", "kept"], ["blocked", "tainted"], ["failed", "failed"]])
    if (counts[category]) parts.push(`${number(counts[category])} ${word}`);
  return parts.join(" · ");
}

function tile(name, counts, target, more = []) {
  return make("div", {role: "listitem", class: "card tile"},
    link(target, name, {class: "title"}),
    make("p", {class: "number"}, number(counts.used + counts.kept), make("small", {}, ` of ${number(counts.all)} in use`)),
    meter(counts, `${counts.used} in use, ${noted(counts)}`), make("p", {class: "dim"}, noted(counts)), more);
}

function tiles() {
  const {all, classes} = summary();
  if (!all.all) return [];
  const percent = Math.round(100 * (all.used + all.kept) / all.all);
  const oldest = cluster.waiting ? cluster.claims[0] : null; // Those without a pod are last.
  const listed = [...classes].sort(([left], [right]) => byName(left, right)).map(([name, {counts, models}]) => {
    const byUse = [...models].sort(([, left], [, right]) => right.all - left.all);
    const own = name === "other" ? "" : name;
    const lines = byUse.slice(0, MODELS).map(([model, each]) => make("li", {},
      link(model === NO_MODEL ? routes.exact(own) : routes.exact(own, model), model), make("span", {}, load(each))));
    if (byUse.length > MODELS) lines.push(make("li", {}, make("span", {class: "dim"}, `and ${byUse.length - MODELS} more models`)));
    return tile(className(name), counts, routes.exact(own), make("ul", {class: "models"}, lines));
  });
  return [
    make("div", {role: "listitem", class: "card tile"}, link(routes.devices(), "Utilisation", {class: "title"}),
      make("p", {class: "number"}, `${percent}`, make("small", {}, " % of devices in use")), meter(all, `${percent} % in use`),
      make("p", {class: "dim"}, `${number(all.all)} devices · ${cluster.fabrics.length} fabric${cluster.fabrics.length === 1 ? "" : "s"}`)),
    make("div", {role: "listitem", class: `card tile ${cluster.waiting ? "wait" : ""}`}, make("span", {class: "title"}, "Claims waiting"),
      make("p", {class: "number"}, number(cluster.waiting)),
      make("p", {class: "dim"}, oldest ? time(oldest.since, "the oldest for ") : "no claim waits for a device", cluster.unused ? ` · ${number(cluster.unused)} without a pod` : "")),
    ...listed,
  ];
}

export function entry(mark, title, why, target = "", action = "Explain") {
  const more = target && [" ", link(`${target}?explain`, action, {class: "action"})];
  return make("li", {class: "row"}, make("div", {class: "what"}, mark, title && make("b", {}, title)), why || more ? make("p", {class: "why"}, [why].flat().map((each) => typeof each === "string" ? breakable(each) : each), more) : "");
}

export const waitChip = (claim) => claim.severity === "note" ? chip("free", "without a pod") : chip("wait", ["waits ", time(claim.since)]);

export const pendingEntry = (claim) => {
  const target = routes.claim(claim.namespace, claim.name);
  return entry(waitChip(claim), link(target, `${claim.namespace}/${claim.name}`), claim.waitsFor, target);
};

// The worst is first.
function attention() {
  const {failed, ill, taints} = summary();
  const bad = [], warn = cluster.unread.map((sentence) => entry(chip("warn", "not readable"), "", sentence)), rest = [];
  for (const fabric of cluster.fabrics) {
    const problems = fabric.problems.length || ["Connected", "Unknown"].includes(fabric.state) ? fabric.problems : [{type: fabric.state, reason: "", since: fabric.since, message: fabric.message}];
    for (const problem of problems) {
      const isLost = problem.type === "Connected";
      (isLost ? bad : warn).push(entry(chip(isLost ? "bad" : fabric.state === "Pending" ? "wait" : "warn", isLost ? problem.reason : problem.type),
        link(routes.fabric(fabric.name), `fabric ${fabric.name}`), [problem.message, " ", time(problem.since, "· ")], fabric.state === "Missing" ? "" : routes.fabric(fabric.name)));
    }
  }
  for (const row of failed.slice(0, MOST))
    bad.push(entry(chip("failed", "Failed"), link(routes.device(row), row.device.name), [row.waits, row.device.node && ` (node ${row.device.node})`], routes.device(row)));
  if (failed.length > MOST) bad.push(entry("", link(routes.devices({show: "failed"}), `and ${failed.length - MOST} more failed devices`), ""));
  for (const row of ill.slice(0, MOST))
    warn.push(entry(chip("warn", "Unhealthy"), link(routes.device(row), row.device.name), row.device.healthMessage, routes.device(row)));
  if (ill.length > MOST) warn.push(entry("", link(routes.devices({q: "unhealthy"}), `and ${ill.length - MOST} more unhealthy devices`), ""));
  const held = summary().moving.filter(isHeld);
  for (const row of held.slice(0, MOST))
    warn.push(entry(chip("warn", row.device.refusal || "overdue"), link(routes.device(row), row.device.name), row.why, routes.device(row)));
  if (held.length > MOST) warn.push(entry("", link(routes.devices({show: "moving"}), `and ${held.length - MOST} more that wait`), ""));
  rest.push(...cluster.claims.filter((claim) => claim.severity !== "note").slice(0, MOST).map(pendingEntry));
  if (cluster.waiting > MOST) rest.push(entry("", `and ${number(cluster.waiting - MOST)} more claims wait`, ""));
  // A failed device is listed already.
  for (const [taint, tainted] of taints) {
    const rows = tainted.filter((row) => row.category !== "failed");
    if (rows.length) rest.push(entry(taint.endsWith(":None") ? chip("free", "informs") : chip("blocked", "tainted"), link(routes.exact(taint), rows.length === 1 ? rows[0].device.name : `${number(rows.length)} devices`), taint, routes.device(rows[0]), rows.length === 1 ? "Explain" : `Explain ${rows[0].device.name}`));
  }
  const listed = [...bad, ...warn, ...rest];
  if (!listed.length && cluster.isLost) return [make("li", {class: "empty"}, "Nothing needed attention.")];
  if (!listed.length) return [make("li", {class: "empty good"}, make("i", {"aria-hidden": "true"}, "✓"), "Nothing needs attention.")];
  return listed;
}

function moving() {
  const rows = [...summary().moving].sort((left, right) => byName(left.device.since, right.device.since));
  if (!rows.length) return [make("li", {class: "empty"}, "No device is being attached or released.")];
  const listed = rows.slice(0, MOST).map((row) => entry(chip("moving", row.device.state + step(row.device.state)),
    [link(routes.device(row), row.device.name), row.device.node && [" → ", link(routes.node(row.device.node), row.device.node)]], [row.why, " ", time(row.device.since, "· ")]));
  if (rows.length > MOST) listed.push(entry("", link(routes.devices({show: "moving"}), `and ${rows.length - MOST} more`), ""));
  return listed;
}

export function eventEntry(event) {
  const names = event.about.map((about, index) => {
    const target = {ResourceClaim: routes.claim, Pod: routes.pod}[about.kind];
    const shown = about.namespace && target ? `${about.namespace}/${about.name}` : about.name;
    const named = target ? link(target(about.namespace, about.name), shown) : about.kind === "Node" ? link(routes.node(about.name), shown) : shown;
    return [index ? ", " : "", named];
  });
  return make("li", {class: `event ${event.type === "Warning" ? "warning" : ""}`}, make("div", {class: "what"},
    make("b", {}, event.type === "Warning" ? "! " : "", event.reason), time(event.at)), make("p", {class: "why"}, event.note), make("p", {class: "about"}, names));
}

export const eventEntries = (events, none) => events.length ? events.map(eventEntry) : [make("li", {class: "empty"}, none)];

export function overview() {
  replace(element("tiles"), tiles());
  replace(element("attention"), cluster.isRead ? attention() : []);
  replace(element("moving"), cluster.isRead ? moving() : []);
  replace(element("latest"), cluster.isRead ? eventEntries(cluster.events.slice(0, LATEST), "No Events in the last hour.") : []);
  element("overview").classList.toggle("calm", !hasTrouble());
  element("overview").classList.toggle("bare", !cluster.rows.size);
}
