// The pages of one device, claim, pod, node and fabric: facts, devices, timeline, explanation and Events, with links between them.

import {copy, element, make, moment, replace, time} from "./dom.js";
import {STEPS, byName, chip, cluster, count, fabricChip, link, routes, stateChip, summary} from "./store.js";
import {className, eventEntries, load, meter, noted, number, waitChip} from "./overview.js";

const MOST = 200; // devices of a page
const TIMELINE = 20; // devices whose moments are in a timeline
const SEVERITIES = {error: "bad", warning: "warn", unchecked: "warn", note: "free", ok: "good"};
const WAY = ["Allocated", "Pending", "Attached", "Ready"], BACK = ["Releasing", "Released"];
const TITLES = {
  Allocated: "given by the scheduler", Pending: "asked of the manager", Attached: "connected", Ready: "ready", Releasing: "the node releases it",
  Released: "the manager detaches it",
};

const explained = new Map(); // by path of the object: the answer, or null while it is awaited

// The first command of a next step; the sentence goes on after it.
const command = (remedy) => remedy.match(/\b((?:drawbar|kubectl) .+?)(?: (?:shows|lists|has|lifts|follows|lets|names|looks)\b|[;,()]|: |$)/)?.[1] ?? "";
const where = (namespace, name) => `${namespace}/${name}`;
const unique = (listed) => [...new Set(listed)];
const joined = (listed) => listed.flatMap((each, index) => index ? [", ", each] : [each]);

// What each page shows: title, chip, facts, devices, Events and what explain can be asked.

function device(pool, name) {
  const row = cluster.rows.get(`${pool} ${name}`);
  if (!row) return {title: name, gone: `There is no device ${name} in the pool ${pool}.`};
  const {device} = row;
  const names = new Set([device.attachment, device.node && "", ...device.claims.flatMap((claim) => [claim.name, ...claim.pods])].filter(Boolean));
  return {
    title: name, chips: [stateChip(row), row.isIll ? chip("warn", "Unhealthy", device.healthMessage) : "", row.taints.map((taint) => chip("blocked", taint, taint))], row,
    note: row.why, noteStyle: row.category === "failed" ? "bad" : "",
    facts: [
      ["Since", device.since && [time(device.since), " ago · ", make("span", {class: "dim"}, moment(device.since))]],
      ["Claim", joined(device.claims.map((claim) => link(routes.claim(claim.namespace, claim.name), where(claim.namespace, claim.name))))],
      ["Pods", joined(device.claims.flatMap((claim) => claim.pods.map((pod) => link(routes.pod(claim.namespace, pod), where(claim.namespace, pod)))))],
      ["Node", device.node && link(routes.node(device.node), device.node)],
      ["Host", [device.host, device.port && `, port ${device.port}`, device.slot && `, slot ${device.slot}`].filter(Boolean).join("")],
      ["Fabric", row.fabric && link(routes.fabric(row.fabric), row.fabric)], ["Enclosure", row.enclosure],
      ["Class", device.deviceClass && className(device.deviceClass)], ["Model", device.model],
      ["Serial", device.serial && [make("code", {}, device.serial), copy(device.serial, "serial")]],
      ["Id", device.id && [make("code", {}, device.id), copy(device.id, "id")]], ["Pool", device.pool],
      ["Health", [device.health, device.healthMessage].filter(Boolean).join(": ")],
      ["Attachment", device.attachment && [make("code", {}, device.attachment), copy(`kubectl describe deviceattachment ${device.attachment}`, "the kubectl command")]],
      ["Composite", device.composite],
      ...Object.entries(device.attributes).map(([key, value]) => [key, String(value)]),
    ],
    about: (event) => event.about.some((about) => names.has(about.name)) || event.note.split(/[\s,:;]+/).includes(name),
    explain: {kind: "device", namespace: pool, name},
  };
}

const devicesOf = (test) => [...cluster.rows.values()].filter(test);

function claim(namespace, name) {
  const rows = devicesOf((row) => row.device.claims.some((each) => each.namespace === namespace && each.name === name));
  const pending = cluster.claims.find((each) => each.namespace === namespace && each.name === name);
  const own = rows[0]?.device.claims.find((each) => each.namespace === namespace && each.name === name);
  const pods = pending?.pods ?? own?.pods ?? [];
  const page = {
    title: where(namespace, name), copied: name, rows,
    about: (event) => event.about.some((about) => about.namespace === namespace && (about.name === name && about.kind === "ResourceClaim" || pods.includes(about.name))),
    explain: {kind: "claim", namespace, name},
  };
  if (!pending && !own) return {...page, gone: `There is no claim ${name} in the namespace ${namespace} that waits or has a device of this driver.`};
  return {
    ...page, chips: [pending ? waitChip(pending) : chip(own.waitsFor ? "moving" : "used", own.state)],
    note: pending ? pending.waitsFor : own.waitsFor && `waits for ${own.waitsFor}`, noteStyle: pending && pending.severity !== "note" ? "wait" : "",
    facts: [
      ["Since", [time((pending ?? own).since), " ago · ", make("span", {class: "dim"}, moment((pending ?? own).since))]],
      ["Pods", joined(pods.map((pod) => link(routes.pod(namespace, pod), pod)))], ["Namespace", namespace], ["Node", own?.node && link(routes.node(own.node), own.node)],
      ["Command", [make("code", {}, `drawbar explain claim/${name} -n ${namespace}`), copy(`drawbar explain claim/${name} -n ${namespace}`, "the command")]],
    ],
  };
}

function pod(namespace, name) {
  const rows = devicesOf((row) => row.device.claims.some((each) => each.namespace === namespace && each.pods.includes(name)));
  const own = unique(rows.flatMap((row) => row.device.claims.filter((each) => each.namespace === namespace && each.pods.includes(name)).map((each) => each.name)));
  const pending = cluster.claims.filter((each) => each.namespace === namespace && each.pods.includes(name));
  const claims = unique([...own, ...pending.map((each) => each.name)]);
  const page = {
    title: where(namespace, name), copied: name, rows,
    about: (event) => event.about.some((about) => about.namespace === namespace && (about.kind === "Pod" && about.name === name || claims.includes(about.name))),
    explain: {kind: "pod", namespace, name},
  };
  if (!claims.length) return {...page, gone: `No claim of the pod ${name} in the namespace ${namespace} waits or has a device of this driver.`};
  return {
    ...page, chips: [pending.length ? chip("wait", ["waits ", time(pending[0].since)]) : chip("used", "has its devices")],
    note: pending[0]?.waitsFor, noteStyle: "wait",
    facts: [
      ["Claims", joined(claims.map((each) => link(routes.claim(namespace, each), each)))], ["Namespace", namespace],
      ["Node", rows[0]?.device.node && link(routes.node(rows[0].device.node), rows[0].device.node)],
      ["Command", [make("code", {}, `kubectl describe pod ${name} -n ${namespace}`), copy(`kubectl describe pod ${name} -n ${namespace}`, "the command")]],
    ],
  };
}

function node(name) {
  const rows = devicesOf((row) => row.device.node === name);
  const hosts = cluster.fabrics.flatMap((fabric) => fabric.hosts.filter((host) => host.node === name).map((host) => ({fabric: fabric.name, host: host.host})));
  const users = new Set(rows.flatMap((row) => row.device.claims.flatMap((each) => [where(each.namespace, each.name), ...each.pods.map((pod) => where(each.namespace, pod))])));
  const page = {
    title: name, rows, about: (event) => event.about.some((about) => about.name === name && about.kind === "Node" || users.has(where(about.namespace, about.name))),
    explain: {kind: "node", name},
  };
  if (!rows.length && !hosts.length) return {...page, gone: `No fabric has a host for the node ${name}, and the node has no device.`};
  const attached = rows.filter((row) => row.fabric);
  return {
    ...page, chips: [chip(rows.some((row) => row.category === "failed") ? "failed" : "good", `${attached.length} attached`)],
    facts: [
      ["Hosts", joined(hosts.map((each) => make("span", {}, each.host, " of ", link(routes.fabric(each.fabric), each.fabric))))],
      ["Attached devices", String(attached.length)], ["Own devices", String(rows.length - attached.length)],
      ["Command", [make("code", {}, `drawbar explain node/${name}`), copy(`drawbar explain node/${name}`, "the command")]],
    ],
  };
}

function fabric(name) {
  const found = cluster.fabrics.find((each) => each.name === name);
  if (!found) return {title: name, gone: `There is no Fabric ${name}.`};
  const rows = devicesOf((row) => row.fabric === name), counts = count(rows), enclosures = summary().fabrics.get(name)?.enclosures ?? new Map();
  const users = new Set(rows.flatMap((row) => row.device.claims.map((each) => where(each.namespace, each.name))));
  const problems = found.problems.length ? found.problems : found.message ? [{type: found.state, reason: "", since: found.since, message: found.message}] : [];
  return {
    title: name, chips: [fabricChip(found)],
    facts: [
      ["Since", found.since && [time(found.since), " · ", make("span", {class: "dim"}, moment(found.since))]], ["Adapter", found.adapter],
      ["Devices", rows.length && [link(routes.exact(name), `${rows.length.toLocaleString("en")} devices`), ` · ${number(counts.used + counts.kept)} in use · ${noted(counts)}`]],
      ["Hosts", found.hostCount && `${found.hostCount.toLocaleString("en")}, ${found.hosts.length.toLocaleString("en")} of them nodes`],
      ["Command", [make("code", {}, `kubectl describe fabric ${name}`), copy(`kubectl describe fabric ${name}`, "the command")]],
    ],
    problems, map: `#/?fabric=${encodeURIComponent(name)}`,
    enclosures: [...enclosures].sort(([left], [right]) => byName(left, right)),
    about: (event) => event.about.some((about) => about.name === name && about.kind === "Fabric" || users.has(where(about.namespace, about.name))),
    explain: {kind: "fabric", name},
  };
}

// The known moments of the devices, beside their Events.
function moments(rows) {
  const found = new Map();
  for (const {device} of rows) {
    for (const {namespace, name, since} of device.claims) if (since) found.set(`${since} ${namespace}/${name}`, {at: since, type: "Normal", reason: "Claim allocated", note: "The scheduler allocated the claim.", about: [{kind: "ResourceClaim", namespace, name}]});
    if (device.since && STEPS[device.state]) found.set(`${device.since} ${device.name}`, {at: device.since, type: "Normal", reason: `${device.name}: ${device.state}`, note: TITLES[device.state], about: []});
  }
  return [...found.values()];
}

const PAGES = {device, claim, pod, node, fabric};
export const isKind = (kind) => kind in PAGES;

// Parts

function steps(row) {
  const {state, since} = row.device;
  if (!STEPS[state]) return "";
  const way = BACK.includes(state) ? BACK : WAY, at = way.indexOf(state);
  return make("ol", {class: `steps ${row.category}`, "aria-label": "Steps"}, way.map((each, index) => make("li", {class: index < at || state === "Ready" ? "done" : index === at ? "now" : "next", "aria-current": index === at ? "step" : ""},
    make("b", {}, each), make("span", {}, TITLES[each]), index === at ? time(since, "for ") : "")));
}

function deviceRows(rows) {
  const listed = rows.slice(0, MOST).map((row) => make("li", {class: "row"}, make("div", {class: "what"}, stateChip(row), link(routes.device(row), row.device.name), make("span", {class: "dim push"}, row.device.model)),
    make("p", {class: "why"}, [row.place, row.device.port && `port ${row.device.port}`, row.why].filter(Boolean).join(" · "), " ", time(row.device.since, "· "))));
  if (rows.length > MOST) listed.push(make("li", {class: "empty"}, `and ${rows.length - MOST} more`));
  return listed;
}

const card = (title, ...content) => make("section", {class: "card", "aria-label": title}, make("h2", {}, title), ...content);

function explanation(asked) {
  const path = new URLSearchParams(asked).toString(), answer = explained.get(path);
  const button = make("button", {type: "button", class: "primary", "data-explain": path}, answer === undefined ? `Explain this ${asked.kind}` : answer === null ? "Reading the cluster …" : "Explain again");
  if (answer === null) button.disabled = true;
  const content = answer?.error ? [make("p", {class: "banner bad"}, answer.error)] : answer ? [make("ul", {class: "rows findings"}, answer.findings.map((finding) => make("li", {class: "row"},
    make("div", {class: "what"}, chip(SEVERITIES[finding.severity] || "wait", finding.severity), make("b", {}, finding.subject)), make("p", {class: "why"}, finding.message),
    finding.remedy ? make("p", {class: "remedy"}, make("span", {}, `→ ${finding.remedy}`), command(finding.remedy) ? copy(command(finding.remedy), "the command") : "") : "")))] : answer === undefined ? [make("p", {class: "dim"}, "Drawbar reads all that this object depends on, and names the cause and the next step.")] : [];
  return card("Why", ...content, button);
}

export function drawObject(kind, parts, isStale) {
  const page = PAGES[kind](...parts), rows = page.rows ?? [];
  const listed = page.about ? cluster.events.filter(page.about) : [], own = page.row ? [page.row] : rows.length <= TIMELINE ? rows : [];
  const events = [...listed, ...moments(own)].sort((left, right) => Date.parse(right.at) - Date.parse(left.at)).slice(0, MOST);
  const main = [], side = [];
  if (page.gone) main.push(make("div", {class: "card empty tall"}, make("p", {class: "big"}, cluster.isRead ? "Nothing to show" : "Reading the cluster"), cluster.isRead ? make("p", {}, page.gone) : ""));
  if (page.problems?.length) main.push(card("Problems", make("ul", {class: "rows"}, page.problems.map((problem) => make("li", {class: "row"},
    make("div", {class: "what"}, chip(problem.type === "Connected" ? "bad" : "warn", [problem.type === "Connected" ? "not connected" : problem.type, problem.reason && `: ${problem.reason}`].filter(Boolean).join("")), time(problem.since, "for ")), make("p", {class: "why"}, problem.message))))));
  if (page.row) main.push(card("Progress", steps(page.row) || make("p", {class: "dim"}, page.row.category === "blocked" ? "The device is free, but its taint keeps the scheduler from giving it out." : page.row.device.state === "Free" ? "The device is free." : `The device is ${page.row.device.state}.`)));
  if (page.facts) main.push(card("Facts", make("dl", {}, page.facts.filter(([, value]) => value && value.length !== 0).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]))));
  if (page.enclosures?.length) main.push(card("Enclosures", make("ul", {class: "meters"}, page.enclosures.map(([name, listed]) => {
    const counts = count(listed);
    return make("li", {}, link(routes.exact(page.title, name), name || "devices"), meter(counts, noted(counts)), make("span", {}, load(counts)));
  }))));
  if (page.rows && rows.length) main.push(card(rows.length === 1 ? "Device" : `${rows.length} devices`, make("ul", {class: "rows"}, deviceRows(rows))));
  if (page.explain && !(page.gone && kind === "device")) side.push(explanation(page.explain));
  side.push(card("Timeline", make("ol", {class: "rows"}, eventEntries(events, "No Events about it in the last hour."))));
  const head = make("div", {class: "object-head"}, make("p", {class: "crumbs"}, link("#/", "Overview"), " › ", kind), make("div", {class: "map-title"},
    make("h1", {id: "object-title"}, page.title), copy(page.copied ?? page.title, "the name"), page.chips ?? "", page.map ? link(page.map, "on the map", {class: "action push"}) : ""),
  page.note ? make("p", {class: `banner ${page.noteStyle}`}, page.note) : "");
  if (isStale) replace(element("object"), [head, make("div", {class: "columns"}, make("div", {}, main), make("div", {class: "side"}, side))]);
  document.title = `${page.title} · Drawbar`;
}

export async function explain(asked, again) {
  if (explained.get(asked) === null) return;
  explained.set(asked, null);
  again();
  let answer;
  try {
    const response = await fetch(`explain?${asked}`);
    answer = response.ok ? await response.json() : {error: await response.text()};
  } catch {
    answer = {error: "drawbar ui does not answer; start it again if it has ended"};
  }
  explained.set(asked, answer);
  if (explained.size > 50) explained.delete(explained.keys().next().value);
  again();
}

export function askedOf(kind, parts) {
  const asked = parts.length === 2 ? {kind, namespace: parts[0], name: parts[1]} : {kind, name: parts[0]};
  return new URLSearchParams(asked).toString();
}
