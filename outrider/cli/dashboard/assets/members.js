// The table of members, and the panel of one: its facts, its stack, its last collective and its output.
"use strict";
const Members = (() => {
  const {byId, make, text, attribute, show, keyed, isNumber, number, percent, seconds} = Dom;
  const MOST = 100;
  const OK = new Set(["running", "done", "ready"]), BAD = new Set(["lost", "failed", "silent", "unsupervised"]);
  const known = (value) => isNumber(value) && value > 0;

  const memory = (each) => !known(each.memory_mib) && !known(each.memory_limit_mib) ? "–" : `${known(each.memory_mib) ? number(each.memory_mib) : "–"}${known(each.memory_limit_mib) ? ` / ${number(each.memory_limit_mib)}` : ""} MiB`;
  const own = (each) => !isNumber(each.own_seconds) ? "–" : `${seconds(each.own_seconds)}${isNumber(each.median_seconds) ? ` / ${seconds(each.median_seconds)}` : ""}`;
  const link = (each) => !isNumber(each.round_trip_ms) ? "–" : `${each.round_trip_ms.toFixed(2)} ms${known(each.loss) ? `, ${percent(each.loss)} lost` : ""}`;

  /** Every column: its name, what it shows, what it sorts by, whether it holds numbers. */
  const COLUMNS = [
    ["member", (each) => each.id, (each) => each.id],
    ["index", (each) => each.rank_index ?? "–", (each) => each.rank_index ?? Infinity, true],
    ["state", (each) => each.state, (each) => each.state],
    ["node", (each) => each.node || "–", (each) => each.node],
    ["step", (each) => number(each.step), (each) => each.step, true],
    ["own step / others'", own, (each) => each.own_seconds ?? -1, true],
    ["cpu", (each) => known(each.cpu) ? each.cpu.toFixed(2) : "–", (each) => each.cpu ?? -1, true],
    ["memory / limit", memory, (each) => each.memory_mib ?? -1, true],
    ["save's age", (each) => seconds(each.checkpoint_age), (each) => each.checkpoint_age ?? -1, true],
    ["network", link, (each) => each.round_trip_ms ?? -1, true],
  ];
  let members = [], slow = new Set(), sort = {column: 1, down: false}, open = () => {};

  /** The members that a filter leaves, in order. */
  function listed(all, filter, order) {
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    const found = all.filter((each) => words.every((word) => `${each.id} ${each.node} ${each.state} ${each.role}`.toLowerCase().includes(word)));
    const by = COLUMNS[order.column][2], sign = order.down ? -1 : 1;
    const places = new Map(all.map((each, place) => [each, place]));
    return found.sort((one, other) => {
      const a = by(one), b = by(other);
      return (a < b ? -sign : a > b ? sign : 0) || places.get(one) - places.get(other);
    });
  }

  function head(choose) {
    open = choose;
    byId("member-head").replaceChildren(...COLUMNS.map(([name, , , isNumeric], column) => {
      const button = make("button", {type: "button", class: "sort"}, name);
      button.addEventListener("click", () => { sort = {column, down: sort.column === column ? !sort.down : false}; draw(); });
      return make("th", {scope: "col", class: isNumeric ? "n" : null}, button);
    }));
    byId("member-filter").addEventListener("input", draw);
  }

  function create(member) {
    const button = make("button", {type: "button", class: "link"});
    button.addEventListener("click", () => open(member.id, button));
    return make("tr", {}, make("td", {}, button), ...COLUMNS.slice(1).map(([, , , isNumeric]) => make("td", {class: isNumeric ? "n" : null})));
  }

  function update(row, member) {
    text(row.firstChild.firstChild, member.id);
    for (let i = 1; i < COLUMNS.length; i++) text(row.children[i], COLUMNS[i][1](member));
    attribute(row.children[2], "class", OK.has(member.state) ? "good" : BAD.has(member.state) ? "bad" : "");
    attribute(row.children[2], "title", member.blocked || "");
    attribute(row.children[5], "class", slow.has(member.id) ? "n bad" : "n");
    attribute(row, "class", ["gone", "replaced"].includes(member.state) ? "past" : "");
  }

  function draw() {
    const found = listed(members, byId("member-filter").value, sort);
    keyed(byId("member-rows"), found.slice(0, MOST), (member) => member.id, create, update);
    [...byId("member-head").children].forEach((cell, column) => {
      if (column === sort.column) attribute(cell, "aria-sort", sort.down ? "descending" : "ascending"); else cell.removeAttribute("aria-sort");
    });
    const shown = Math.min(found.length, MOST);
    text(byId("member-count"), !members.length ? "No members yet." : shown < members.length ? `${number(shown)} of ${number(members.length)}${found.length > MOST ? "; filter to see others" : ""}` : number(members.length));
  }

  /** `late`: the members that are slow, as the master's comparison says. */
  function set(list, late) { members = list; slow = new Set(late); draw(); if (shownMember) facts(); }

  // -- the panel -----------------------------------------------------------------------------------------------------
  let shownMember = "", ask = null, opener = null;

  /** Opens the panel of a member; `request(what)` reads its `stack` or `lines`. */
  function show_(id, request, button) {
    if (id === shownMember) return;
    shownMember = id; ask = request; opener = button || opener;
    text(byId("panel-title"), id);
    byId("panel-facts").replaceChildren(); byId("panel-facts").known = new Map();
    byId("stack").replaceChildren(); text(byId("lines"), "");
    facts(); show(byId("panel"), true); document.body.classList.add("with-panel");
    byId("main").inert = matchMedia("(max-width: 44rem)").matches;  // there it covers the page
    byId("panel-title").focus();
    stack(); lines();
  }

  function hide() {
    if (!shownMember) return;
    shownMember = ""; show(byId("panel"), false); document.body.classList.remove("with-panel"); byId("main").inert = false;
    (opener && opener.isConnected ? opener : byId("main")).focus();
    opener = null;
  }

  function facts() {
    const member = members.find((each) => each.id === shownMember);
    const rows = member ? [...COLUMNS.slice(1).map(([name, value]) => [name, String(value(member))]),
      ["role", member.role || "–"], ["mode", member.mode || "–"], ["gpus", number(member.gpus)],
      ["trainer", member.trainer ? `pid ${member.trainer}` : "–"], ["workers", (member.workers || []).join(" ") || "–"],
      ...(member.blocked ? [["blocked", member.blocked]] : [])] : [["state", "This job has no such member."]];
    keyed(byId("panel-facts"), rows, ([name]) => name, ([name]) => make("div", {}, make("dt", {}, name), make("dd")), (row, [, value]) => text(row.lastChild, value));
  }

  async function stack() {
    const of = shownMember, problem = byId("stack-problem");
    text(problem, "Asking the ranks …");
    const found = await ask("stack");
    if (of !== shownMember) return;
    text(problem, found.problem || `Read at ${Dom.time(Date.now() / 1000)}.`);
    byId("stack").replaceChildren(...(found.ranks || []).map((rank) => make("div", {},
      make("h4", {}, `Rank ${rank.rank}${isNumber(rank.step) ? `, step ${number(rank.step)}` : ""}${rank.phase ? `, ${rank.phase}` : ""}`),
      make("p", {class: "faint"}, rank.collective ? `Last collective: ${rank.collective}` : "No collective is known."),
      make("pre", {role: "group", tabindex: "0", "aria-label": `Stack of rank ${rank.rank}`}, rank.stack.join("\n")))));
  }

  async function lines() {
    const of = shownMember, problem = byId("lines-problem");
    text(problem, "Reading …");
    const found = await ask("lines");
    if (of !== shownMember) return;
    const listed = found.lines || [], ranks = new Set(listed.map((line) => line.rank));
    text(problem, found.problem || `Read at ${Dom.time(Date.now() / 1000)}.`);
    text(byId("lines"), listed.map((line) => `${ranks.size > 1 ? `[${line.rank}] ` : ""}${line.text}`).join("\n"));
    byId("lines").scrollTop = byId("lines").scrollHeight;
  }

  function bind(close) {
    byId("panel-close").addEventListener("click", close);
    byId("stack-again").addEventListener("click", stack);
    byId("lines-again").addEventListener("click", lines);
    addEventListener("keydown", (event) => { if (event.key === "Escape" && shownMember && !byId("confirm").open) close(); });
  }

  return {head, set, open: show_, close: hide, bind, listed, isOpen: () => Boolean(shownMember)};
})();
if (typeof module !== "undefined") module.exports = Members;
