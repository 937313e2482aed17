// Faults with their evidence and stages, what is slow or cut off, and the events as they come.
"use strict";
const Faults = (() => {
  const {byId, make, text, attribute, show, keyed, number, time, moment} = Dom;
  const MOST_EVENTS = 600, SHOWN = 200;

  function pieces(title, list) {
    if (!list.length) return null;
    const bar = make("svg", {class: "bar thin", role: "img", "aria-label": title}), key = make("ul", {class: "key"});
    Account.bar(bar, list); Account.key(key, list);
    return make("div", {}, make("h3", {}, title), bar, key);
  }

  const fact = (name, value) => value === null || value === undefined || value === "" ? null : make("div", {}, make("dt", {}, name), make("dd", {}, String(value)));
  const pre = (value, label) => value ? make("pre", {role: "group", tabindex: "0", "aria-label": label}, value) : null;

  function body(fault) {
    return [
      make("p", {class: "reason"}, fault.reason), make("p", {}, fault.verdict),
      make("dl", {class: "facts"}, fact("rank", fault.rank), fact("member", fault.member), fact("node", fault.node), fact("at", moment(fault.at))),
      pieces("Stages of the recovery", fault.stages || []), pieces("What it cost all members", fault.cost || []),
      ...(fault.exits || []).map((exit) => make("div", {}, make("h3", {}, `${exit.who}: ${exit.sentence}`), exit.error ? make("p", {}, `${exit.error}${exit.frame ? ` at ${exit.frame}` : ""}`) : null, pre(exit.traceback, "Traceback"))),
      ...(fault.groups || []).map((group) => make("div", {}, make("h3", {}, `${group.who}: ${group.state}`), group.collective ? make("p", {}, group.collective) : null, pre(group.stack, "Stack"))),
      ...(fault.lines || []).map(([who, line]) => make("div", {}, make("h3", {}, `${who} wrote`), pre(line, "Line"))),
      (fault.decisions || []).length ? make("h3", {}, "What was decided, and why") : null,
      make("ol", {class: "decisions"}, ...(fault.decisions || []).map(([since, kind, sentence]) => make("li", {}, make("span", {class: "since"}, since), make("b", {}, kind), ` ${sentence}`))),
    ].filter((each) => each !== null);
  }

  function set(faults) {
    show(byId("no-faults"), !faults.length);
    keyed(byId("faults"), [...faults].reverse(), (fault) => fault.number, (fault) => {
      const node = make("details", {class: "fault", id: `fault-${Number(fault.number)}`}, make("summary", {}, make("b"), make("span", {class: "faint"}), make("span")), make("div"));
      node.addEventListener("toggle", () => fill(node));
      return node;
    }, (node, fault) => {
      node.fault = fault;
      const [kind, when, cost] = node.firstChild.children;
      text(kind, `${fault.number}. ${fault.kind}${fault.member ? ` ${fault.member}` : ""}`);
      text(when, ` ${time(fault.at)} `);
      text(cost, fault.recovered ? `recovered in ${fault.recovered}` : "no new step since");
      fill(node);
    });
  }

  /** Fills the body of an open fault when something of it is new. */
  function fill(node) {
    if (!node.open) return;
    const version = JSON.stringify(node.fault);
    if (node.version === version) return;
    node.version = version;
    node.lastChild.replaceChildren(...body(node.fault));
  }

  function reveal(numbered) {
    const node = byId(`fault-${Number(numbered)}`);
    if (node) { node.open = true; node.scrollIntoView({block: "start"}); node.firstChild.focus(); }
  }

  function wrong(stragglers, links) {
    const rows = [...stragglers.map((each) => [`slow ${each.member}`, each.reason || `${each.member} is slow`]),
      ...links.map((each) => [`${each.state} ${(each.members || []).join(" ")}`, each.reason || `${(each.members || []).join(" and ")}: ${each.state}`])];
    show(byId("wrong"), rows.length > 0);
    keyed(byId("wrong-rows"), rows, ([key]) => key, () => make("li"), (node, [, sentence]) => text(node, sentence));
  }

  // -- events --------------------------------------------------------------------------------------------------------
  let events = [], count = 0;

  function add(list, isFresh) {
    if (isFresh) events = [];
    for (const event of list) events.push({...event, place: ++count});
    events.splice(0, Math.max(0, events.length - MOST_EVENTS));
    if (!byId("event-pause").checked) draw();
  }

  function draw() {
    const words = byId("event-filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = events.filter((each) => words.every((word) => `${each.kind} ${each.member} ${each.reason}`.toLowerCase().includes(word))).reverse();
    keyed(byId("event-rows"), found.slice(0, SHOWN), (event) => event.place, (event) => make("tr", {class: event.severity === "warning" ? "warning" : null},
      make("td", {title: moment(event.time)}, time(event.time)), make("td", {}, event.kind || ""), make("td", {}, event.reason || "")), () => {});
    text(byId("event-count"), `${number(Math.min(found.length, SHOWN))} of the newest ${number(events.length)}`);
  }

  function bind() {
    byId("event-filter").addEventListener("input", draw);
    byId("event-pause").addEventListener("change", draw);
  }

  function clear() { events = []; draw(); set([]); }

  return {set, reveal, wrong, add, bind, clear};
})();
if (typeof module !== "undefined") module.exports = Faults;
