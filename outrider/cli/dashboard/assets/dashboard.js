// The page: which job is shown (the part of the address behind #), what the server tells of it, and how old that is.
"use strict";
(() => {
  const {byId, make, text, attribute, show, keyed, isNumber, number, percent, seconds, time, moment} = Dom;
  const OLD = 5, AGAIN = 3000, OVER = ["succeeded", "failed", "stopped"];
  const banner = byId("trouble");
  let start = null, shown = {job: null, member: null}, stream = null, document_ = null, timeline = null, mounted = null;
  let trouble = "", lostSince = 0, isFresh = true, waiting = new Map(), retry = 0;

  // -- requests ------------------------------------------------------------------------------------------------------
  const of = (job) => `/api/jobs/${encodeURIComponent(job)}`;

  async function request(path, options) {
    try {
      const answer = await fetch(path, options);
      const body = await answer.json().catch(() => ({}));
      return answer.ok ? body : {problem: body.problem || `The server answered with HTTP ${answer.status}.`};
    } catch {
      return {problem: "The dashboard does not answer. Is `outrider dashboard` still running?"};
    }
  }

  const send = (job, what, body) => request(`${of(job)}/${what}`, {method: "POST", headers: {"Content-Type": "application/json", "X-Outrider": "1"}, body: JSON.stringify(body)});

  // -- the stream ----------------------------------------------------------------------------------------------------
  function listen(path, handlers) {
    if (stream) stream.close();
    clearTimeout(retry);
    const own = stream = new EventSource(path);
    isFresh = true;
    own.addEventListener("open", () => { lostSince = 0; isFresh = true; said(); });
    own.addEventListener("error", () => {
      if (own !== stream) return;
      if (own.readyState === EventSource.CLOSED) { refused(path, handlers); return; }
      lostSince ||= Date.now() / 1000;
      said();
    });
    for (const [name, handle] of Object.entries(handlers)) own.addEventListener(name, (event) => { if (own === stream) later(name, () => handle(JSON.parse(event.data))); });
  }

  /** The server has refused the stream, such as one whose session is over: it says why, and another tab may mend it. */
  async function refused(path, handlers) {
    const own = stream, answer = await request("/api/start");
    if (own !== stream) return;
    lostSince = 0; trouble = answer.problem || "The dashboard has refused this page; trying again.";
    said();
    retry = setTimeout(() => listen(path, handlers), AGAIN);
  }

  /** Draws the newest of each kind in the next frame; in a hidden page when it is shown again. Events are all kept. */
  function later(name, draw) {
    const isFirst = waiting.size === 0;
    if (name === "events" && waiting.has(name)) { const before = waiting.get(name); waiting.set(name, () => { before(); draw(); }); } else waiting.set(name, draw);
    if (isFirst && !document.hidden) requestAnimationFrame(drawn);
  }

  /** One kind in each frame, so that no frame takes long. */
  function drawn() {
    const next = waiting.entries().next();
    if (next.done) return;
    const [name, draw] = next.value;
    waiting.delete(name);
    if (waiting.size) requestAnimationFrame(drawn);
    draw();
  }

  document.addEventListener("visibilitychange", () => { if (!document.hidden && waiting.size) requestAnimationFrame(drawn); });

  /** What is wrong with the data, above them. */
  function said() {
    const wrong = lostSince ? `The connection to the dashboard is lost since ${time(lostSince)}; trying again. Is \`outrider dashboard\` still running?` : trouble;
    const words = wrong && document_ ? `${wrong} What is shown is as of ${time(document_.at)}.` : wrong;
    text(banner, words);
    show(banner, Boolean(words));
    aged();
  }

  /** Whether the data are live, old, or the last of a job that has ended. */
  function aged() {
    if (!document_) { text(byId("age"), ""); return; }
    const age = Date.now() / 1000 - document_.at, isWrong = Boolean(lostSince || trouble), isOver = OVER.includes(document_.phase);
    const isOld = isWrong || (shown.job !== null && !isOver && age > OLD);
    text(byId("age"), isOld ? `as of ${seconds(age)} ago` : isOver ? "ended" : "live");
    attribute(byId("age"), "class", isOld ? "age bad" : isOver ? "age" : "age good");
  }

  setInterval(() => { if (!document.hidden) aged(); }, 1000);

  // -- all jobs ------------------------------------------------------------------------------------------------------
  function jobs(found) {
    document_ = found;
    show(byId("jobs"), true); aged();
    show(byId("no-jobs"), !found.jobs.length);
    keyed(byId("job-rows"), found.jobs, (each) => each.job, () => make("tr", {}, make("td", {}, make("a")), make("td", {}, make("span", {class: "phase"})), ...Array.from({length: 5}, () => make("td", {class: "n"}))), (row, each) => {
      const [name, phase, ...rest] = row.children;
      text(name.firstChild, each.job); attribute(name.firstChild, "href", `#/job/${encodeURIComponent(each.job)}`);
      text(phase.firstChild, each.phase || "not known"); attribute(phase.firstChild, "class", `phase ${phased(each.phase)}`);
      attribute(row, "title", each.sentence || "");
      [number(each.step), number(each.world), number(each.restarts), number(each.faults), percent(each.goodput)].forEach((value, place) => text(rest[place], value));
    });
  }

  const phased = (phase) => ["running", "succeeded"].includes(phase) ? "good" : phase === "failed" ? "bad" : "";

  // -- a job ---------------------------------------------------------------------------------------------------------
  function job(found) {
    document_ = found;
    show(byId("job"), true); aged();
    text(byId("title"), found.job);
    document.title = `${found.job}: ${found.phase} – Outrider`;
    text(byId("phase"), found.phase); attribute(byId("phase"), "class", `phase ${phased(found.phase)}`);
    text(byId("sentence"), found.sentence);
    text(byId("to-do"), found.to_do); show(byId("to-do"), Boolean(found.to_do));
    text(byId("message"), found.message); show(byId("message"), Boolean(found.message));
    figures(found);
    Orders.set(found.job, found.may || {}, found.members_wanted, found.sizes || [], `${found.phase} ${found.generation}`, send);
    Account.show(found.account); Account.overTime(found.over_time || [], timeline);
    const curves = found.curves || [], drawn = new Set(curves.map((each) => each.name));
    const numbers = Object.entries(found.metrics || {}).filter(([name]) => !drawn.has(name));
    show(byId("log"), numbers.length + curves.length > 0);
    keyed(byId("numbers"), numbers, ([name]) => name, ([name]) => make("div", {}, make("dt", {}, name), make("dd")), (row, [, value]) => text(row.lastChild, Account.short(value)));
    Account.curves(byId("curves"), curves);
    Faults.wrong(found.stragglers || [], found.links || []);
    Members.set(found.members || [], (found.stragglers || []).map((each) => each.member));
    Faults.set(found.faults || []);
    show(byId("advice"), found.advice.length > 0);
    keyed(byId("advice-rows"), found.advice, (each) => each.page + each.what.slice(0, 20), () => make("li", {}, make("p"), make("p", {class: "faint"})), (item, each) => { text(item.firstChild, each.what); text(item.lastChild, `Computed: ${each.how}. See ${each.page}`); });
    show(byId("notes"), found.notes.length > 0);
    keyed(byId("note-rows"), found.notes, (each) => each, () => make("li"), (item, each) => text(item, each));
    if (shown.member && !Members.isOpen()) openMember(shown.member);
  }

  function figures(found) {
    const rows = [
      ["step", `${found.step_estimated ? "about " : ""}${number(found.step)}`], ["ranks", number(found.world)], ["generation", found.generation || "–"],
      ["restarts", number(found.restarts)], ["goodput", percent(found.goodput)],
      ...(found.duration > 3600 ? [["last hour", percent(found.goodput_1h)]] : []), ...(found.duration > 86400 ? [["last day", percent(found.goodput_1d)]] : []),
      ["between faults", seconds(found.mtbf_seconds)], ["since it began", found.duration ? seconds(found.duration) : "–"],
    ];
    keyed(byId("figures"), rows, ([name]) => name, ([name]) => make("div", {}, make("dt", {}, name), make("dd")), (row, [, value]) => text(row.lastChild, value));
  }

  function ranks(data) {
    const has = data.rows.length > 0, root = byId("timeline");
    show(root, has); show(byId("no-timeline"), !has);
    if (!has) return;
    timeline = data;
    if (document_) Account.overTime(document_.over_time || [], timeline);
    if (mounted) mounted.update(data); else {
      root.replaceChildren(byId("timeline-parts").content.cloneNode(true));
      const clock = (unix, isShort) => isShort ? Dom.onAxis(unix, timeline.end / 10) : moment(unix);
      mounted = Timeline.mount(root, data, clock, (numbered) => Faults.reveal(numbered));
    }
    const used = new Set(data.rows.flatMap(([, , flat]) => flat.filter((_, place) => place % 2)));
    const causes = data.causes.filter(([name], place) => name && used.has(place));
    keyed(byId("legend"), causes, ([name]) => name, () => make("li", {}, Account.dot(), " ", make("span")), (item, [name, colour]) => {
      attribute(item.firstChild.firstChild, "class", Account.colour({colour})); text(item.lastChild, name);
    });
  }

  // -- what is shown -------------------------------------------------------------------------------------------------
  function openMember(id, button) {
    Members.open(id, (what) => request(`${of(shown.job)}/members/${encodeURIComponent(id)}/${what}`), button);
  }

  function read(hash) {
    const [, kind, name, part, id] = hash.replace(/^#/, "").split("/").map((each) => { try { return decodeURIComponent(each); } catch { return each; } });
    return kind === "job" && name && name !== "." && name !== ".." ? {job: name, member: part === "member" && id ? id : null} : {job: null, member: null};
  }

  const address = ({job, member}) => job === null ? "#/" : `#/job/${encodeURIComponent(job)}${member ? `/member/${encodeURIComponent(member)}` : ""}`;

  function route() {
    if (start === null) return;
    if (location.hash.startsWith("#fault-") || !/^#?(\/|$)/.test(location.hash)) {
      if (location.hash.startsWith("#fault-")) Faults.reveal(location.hash.slice(7));
      history.replaceState(null, "", address(stream ? shown : {job: start.job, member: null}));
      if (stream) return;
    }
    const next = read(location.hash), isOther = next.job !== shown.job || !stream;
    shown = next;
    if (!next.member) Members.close(); else if (document_ && document_.members) openMember(next.member);
    if (!isOther) return;
    if (mounted) mounted.close();
    document_ = null; trouble = ""; lostSince = 0; mounted = null; timeline = null; waiting = new Map();
    byId("timeline").replaceChildren(); show(byId("timeline"), false); show(byId("no-timeline"), true); Faults.clear(); Orders.clear();
    show(byId("jobs"), false); show(byId("job"), false); show(byId("title"), next.job !== null);
    text(byId("title"), next.job || "");
    document.title = next.job ? `${next.job} – Outrider` : "Jobs – Outrider";
    said();
    const tell = ({sentence}) => { trouble = sentence; said(); };
    if (next.job === null) listen("/api/jobs", {jobs, trouble: tell});
    else listen(of(next.job), {job, timeline: ranks, trouble: tell, events: (found) => { Faults.add(found.events, isFresh); isFresh = false; }});
  }

  Members.head((id, button) => { openMember(id, button); shown.member = id; history.replaceState(null, "", address(shown)); });
  Members.bind(() => { Members.close(); shown.member = null; history.replaceState(null, "", address(shown)); });
  byId("skip").addEventListener("click", (event) => { event.preventDefault(); byId("main").focus(); });
  Faults.bind(); Orders.bind();
  addEventListener("hashchange", route);
  request("/api/start").then((found) => {
    if (found.problem) { trouble = found.problem; said(); return; }
    start = found;
    text(byId("where"), found.where); text(byId("release"), `Outrider ${found.release}. Times are in ${Intl.DateTimeFormat().resolvedOptions().timeZone}.`);
    if (!location.hash && start.job) history.replaceState(null, "", address({job: start.job, member: null}));
    route();
  });
})();
