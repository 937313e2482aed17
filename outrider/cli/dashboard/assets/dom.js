// Small helpers: elements whose text is never markup, lists that are patched by key, numbers as text.
"use strict";
const Dom = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const byId = (id) => document.getElementById(id);

  /** An element with attributes and children; strings become text. */
  function make(tag, attributes = {}, ...children) {
    const made = tag === "svg" || tag === "rect" || tag === "path" || tag === "title" ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) made.setAttribute(name, value);
    made.append(...children.filter((each) => each !== null));
    return made;
  }

  function text(node, value) { const next = String(value ?? ""); if (node.textContent !== next) node.textContent = next; }
  function attribute(node, name, value) { const next = String(value); if (node.getAttribute(name) !== next) node.setAttribute(name, next); }
  function show(node, isShown) { if (node.hidden === isShown) node.hidden = !isShown; }

  /** Makes the children of `parent` those of `items`, in their order; the ones with a known key stay, with their focus. */
  function keyed(parent, items, keyOf, create, update) {
    const known = parent.known ||= new Map(), seen = new Set();
    let before = null;
    for (const item of items) {
      const key = String(keyOf(item));
      if (seen.has(key)) continue;
      seen.add(key);
      let node = known.get(key);
      if (!node) known.set(key, node = create(item));
      update(node, item);
      const next = before ? before.nextSibling : parent.firstChild;
      if (node !== next) parent.insertBefore(node, next);
      before = node;
    }
    for (const [key, node] of known) if (!seen.has(key)) { node.remove(); known.delete(key); }
  }

  // -- numbers -------------------------------------------------------------------------------------------------------
  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
  const whole = new Intl.NumberFormat("en", {maximumFractionDigits: 0});
  const number = (value) => isNumber(value) ? whole.format(value) : "–";
  const percent = (share) => !isNumber(share) ? "–" : share > 0 && share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`;
  const two = (value) => String(value).padStart(2, "0");

  /** A duration of seconds: `0.021 s`, `7.1 s`, `3 min 05 s`, `5 h 34 min`, `3 d 04 h`. */
  function seconds(value) {
    if (!isNumber(value)) return "–";
    if (value < 0.9995) return value >= 0.0005 ? `${value.toFixed(3)} s` : "0 s";
    if (value < 59.95) return `${value.toFixed(1)} s`;
    const all = Math.round(value), minutes = Math.floor(all / 60);
    if (minutes < 60) return `${minutes} min ${two(all % 60)} s`;
    if (minutes < 2880) return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
    return `${number(Math.floor(minutes / 1440))} d ${two(Math.floor(minutes / 60) % 24)} h`;
  }

  const hours = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23"});
  const days = new Intl.DateTimeFormat(undefined, {month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", hourCycle: "h23"});
  const full = new Intl.DateTimeFormat(undefined, {dateStyle: "medium", timeStyle: "medium"});
  const time = (unix) => isNumber(unix) && unix > 0 ? hours.format(new Date(unix * 1000)) : "–";
  const moment = (unix) => isNumber(unix) && unix > 0 ? full.format(new Date(unix * 1000)) : "–";
  /** A time for the axis of a span of so many seconds. */
  const onAxis = (unix, span) => (span > 86400 ? days : hours).format(new Date(unix * 1000));

  return {byId, make, text, attribute, show, keyed, isNumber, number, percent, seconds, time, moment, onAxis};
})();
if (typeof module !== "undefined") module.exports = Dom;
