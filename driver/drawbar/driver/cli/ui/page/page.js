// Follows /updates, and shows the view that the address names. See dom.js about text and markup.

import {source} from "./stream.js";
import {element, make, moment, replace, set, tick} from "./dom.js";
import {cluster, isHeld, link, routes, summary, update} from "./store.js";
import {eventEntries, overview} from "./overview.js";
import {choose, drawMap} from "./map.js";
import {drawTable, settle, target, view} from "./table.js";
import {askedOf, drawObject, explain, isKind} from "./objects.js";

const NEWS_PAUSE = 3000; // milliseconds between two announcements
const search = element("search");
let shown = {name: "overview", parts: [], query: new URLSearchParams()};
let isPlanned = false, isStale = true, back = "#/";

function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  let parts;
  try { parts = path.split("/").filter(Boolean).map(decodeURIComponent); } catch { parts = []; }
  const name = isKind(parts[0]) && parts.length === (["device", "claim", "pod"].includes(parts[0]) ? 3 : 2) ? "object" : ["devices", "events"].includes(parts[0]) ? parts[0] : "overview";
  return {name, parts, query: new URLSearchParams(query)};
}

function go(isFirst) {
  const before = shown;
  shown = read();
  if (before.name !== "object" && shown.name === "object" && !isFirst) back = before.hash;
  shown.hash = location.hash || "#/";
  for (const section of document.querySelectorAll("main > [data-view]")) section.hidden = section.dataset.view !== shown.name;
  for (const each of document.querySelectorAll("nav a")) if (each.dataset.view === shown.name) each.setAttribute("aria-current", "page"); else each.removeAttribute("aria-current");
  document.body.dataset.view = shown.name;
  document.title = {devices: "Devices · Drawbar", events: "Events · Drawbar"}[shown.name] || "Drawbar";
  if (shown.name === "devices") { settle(shown.query); if (document.activeElement !== search) search.value = view.q; }
  else if (document.activeElement !== search) search.value = "";
  if (shown.name === "overview") choose(shown.query.has("fabric") ? shown.query.get("fabric").replace(/^-$/, "") : null);
  if (shown.name !== before.name || shown.name === "object") element("main").scrollTop = 0;
  isStale = true;
  render();
  if (isFirst) return;
  if (shown.name === "object") {
    element("object").focus({preventScroll: true});
    if (shown.query.has("explain")) explain(askedOf(shown.parts[0], shown.parts.slice(1)), () => plan(true));
  } else if (shown.name === "devices" && before.name === "object") element("devices").focus({preventScroll: true});
}

function render() {
  isPlanned = false;
  const wasStale = isStale;
  if (wasStale) frame();
  // A part of the rows is drawn only in the table, and never in place of whole content.
  if (cluster.isPartial && (cluster.isRead || shown.name !== "devices")) return;
  isStale = false;
  if (shown.name === "overview" && wasStale) { overview(); drawMap(); }
  else if (shown.name === "devices") drawTable(wasStale);
  else if (shown.name === "events" && wasStale) replace(element("all-events"), eventEntries(cluster.events, cluster.isRead ? "No Events in the last hour." : ""));
  else if (shown.name === "object") drawObject(shown.parts[0], shown.parts.slice(1), wasStale);
}

function frame() {
  set(element("cluster"), cluster.about.cluster || "");
  element("cluster").title = cluster.about.server ? `${cluster.about.server}, driver ${cluster.about.driver}` : "";
  element("leave").hidden = !cluster.about.reader;
  element("leave").title = cluster.about.reader || "";
  drawConnection();
}

// The page is live only while the server is connected and reads all kinds.
function drawConnection() {
  const {isLost, stale, unread} = cluster;
  const [text, style] = isLost ? ["not connected", "lost"] : stale.since ? ["out of date", "lost"] : unread.length ? ["incomplete", "wait"] : cluster.isRead ? ["live", "live"] : ["connecting", ""];
  set(element("connection"), text);
  element("connection").className = style;
  const lines = isLost ? [make("p", {}, "This is the last known state. Run drawbar ui again if it has ended.")] : !stale.since ? [] : [make("p", {},
    stale.kinds.length ? `${stale.kinds.join(", ")} cannot be read; their content is ` : "The API server cannot be read; this content is ",
    `of ${moment(stale.since)}. `, link("#/", "Needs attention"), " has the reason.")];
  element("lost").hidden = !lines.length;
  replace(element("lost"), lines);
}

function plan(stale) {
  isStale ||= stale;
  if (!isPlanned) { isPlanned = true; requestAnimationFrame(render); }
}

let news = [], isAnnouncing = false;

function announce() {
  if (isAnnouncing || !news.length) return;
  isAnnouncing = true;
  const text = news.length > 3 ? `${news.length} devices changed` : news.join("; ");
  news = [];
  set(element("news"), text);
  setTimeout(() => { isAnnouncing = false; announce(); }, NEWS_PAUSE);
}

function connected(isSo) {
  cluster.isLost = !isSo;
  plan(true);
}

source.onmessage = (message) => {
  const isFirst = !cluster.isRead;
  news.push(...update(JSON.parse(message.data)));
  plan(true);
  announce();
  if (isFirst && cluster.isRead && shown.name === "object" && shown.query.has("explain")) explain(askedOf(shown.parts[0], shown.parts.slice(1)), () => plan(true));
};
source.onopen = () => connected(true);
source.onerror = async () => {
  connected(false);
  // After a log-out, the server shows the login here.
  if (source.readyState === EventSource.CLOSED && (await fetch("session", {method: "HEAD"})).status === 401) location.reload();
};
element("leave").addEventListener("click", async () => { await fetch("session", {method: "DELETE"}); location.reload(); });

addEventListener("hashchange", () => go(false));
element("object").addEventListener("click", (press) => {
  const asked = press.target.closest("[data-explain]")?.dataset.explain;
  if (asked) explain(asked, () => plan(true));
});
search.addEventListener("input", () => {
  const next = shown.name === "devices" ? target({q: search.value}) : routes.devices({q: search.value});
  if (shown.name === "devices") { history.replaceState(null, "", next); go(false); } else location.hash = next;
});
search.addEventListener("keydown", (press) => { if (press.key === "Enter") { location.hash = target({q: search.value}); element("devices").focus(); } });
document.addEventListener("keydown", (press) => {
  if (press.ctrlKey || press.metaKey || press.altKey) return;
  const isTyping = ["INPUT", "SELECT", "TEXTAREA"].includes(press.target.tagName);
  if (press.key === "Escape" && press.target === search) { search.value = ""; search.dispatchEvent(new Event("input")); }
  else if (press.key === "Escape" && shown.name === "object") location.hash = back;
  else if (press.key === "Escape" && shown.name !== "overview" && !isTyping) location.hash = "#/";
  else if (isTyping) return;
  else if (press.key === "/") { search.focus(); search.select(); press.preventDefault(); }
  else if (press.key === "t" && shown.name === "overview") location.hash = shown.query.get("fabric") ? routes.exact(shown.query.get("fabric").replace(/^-$/, "")) : "#/devices";
});
// A deadline passes without a change of the cluster.
let held = 0;
setInterval(() => {
  tick();
  const count = summary().moving.filter(isHeld).length;
  if (count !== held) plan(true);
  held = count;
}, 1000);
go(true);
