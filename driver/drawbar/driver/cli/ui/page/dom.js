// Elements and times. All text goes into the document as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

export const element = (id) => document.getElementById(id);

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined && value !== "") made.setAttribute(name, value);
  made.append(...children.flat(Infinity).filter((child) => child !== "" && child !== null && child !== undefined));
  return made;
}

export const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const draw = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export function set(target, text) { if (target.textContent !== text) target.textContent = text; }

// Equal elements stay in the document, so that focus and scroll position stay, too.
export function replace(parent, lines) {
  lines.forEach((line, index) => {
    const old = parent.children[index];
    if (!old) parent.append(line); else if (old !== line && !old.isEqualNode(line)) old.replaceWith(line);
  });
  while (parent.children.length > lines.length) parent.lastElementChild.remove();
}

export function age(stamp) {
  const seconds = Math.max(0, Math.floor((Date.now() - Date.parse(stamp)) / 1000));
  if (Number.isNaN(seconds)) return stamp ? "?" : "";
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["m", 60]])
    if (seconds >= 2 * length) return `${Math.floor(seconds / length)} ${unit}`;
  return `${seconds} s`;
}

const LONG = new Intl.DateTimeFormat(undefined, {dateStyle: "medium", timeStyle: "long"});
export const moment = (stamp) => (Number.isNaN(Date.parse(stamp)) ? stamp : LONG.format(new Date(stamp)));

export const time = (stamp, before = "") => stamp ? make("time", {datetime: stamp, title: moment(stamp), "data-before": before}, before + age(stamp)) : "";

export function tick() {
  for (const each of document.querySelectorAll("time")) set(each, (each.dataset.before || "") + age(each.dateTime));
}

// The text, which may break after these signs.
export const breakable = (text) => text.split(/(?<=[/=:])(?=\w)/).flatMap((part, index) => index ? [make("wbr"), part] : [part]);

export function copy(text, label) {
  return make("button", {type: "button", class: "copy", "data-copy": text, "aria-label": `Copy ${label}`, title: `Copy ${label}`}, "copy");
}

document.addEventListener("click", async (press) => {
  const button = press.target.closest?.("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    set(button, "copied");
  } catch {
    set(button, "not allowed");
  }
  setTimeout(() => set(button, "copy"), 1500);
});
