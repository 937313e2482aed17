// The time account: a stacked bar with its table, stages of a recovery, and the share of new steps over time.
"use strict";
const Account = (() => {
  const {make, text, attribute, keyed, seconds, percent, isNumber, onAxis, byId} = Dom;
  const FEW = 30, COLOUR = /^c-[a-z_]+$/;
  const colour = (piece) => COLOUR.test(piece.colour) ? piece.colour : "c-other";

  /** Draws pieces as parts of a bar. */
  function bar(svg, pieces) {
    keyed(svg, pieces, (piece) => piece.name, () => make("rect", {height: "100%"}, make("title")), (rect, piece) => {
      attribute(rect, "class", colour(piece));
      attribute(rect, "x", `${piece.left.toFixed(3)}%`);
      attribute(rect, "width", `${(100 * piece.share).toFixed(3)}%`);
      text(rect.firstChild, `${piece.name}: ${seconds(piece.seconds)}`);
    });
  }

  const dot = () => make("svg", {class: "dot", "aria-hidden": "true"}, make("rect", {width: "100%", height: "100%"}));

  /** A list of pieces with their times, as the key of a bar. */
  function key(list, pieces) {
    keyed(list, pieces, (piece) => piece.name, () => make("li", {}, dot(), " ", make("b"), " ", make("span"), make("small")), (item, piece) => {
      attribute(item.firstChild.firstChild, "class", colour(piece));
      text(item.children[1], piece.name);
      text(item.children[2], seconds(piece.seconds));
      text(item.children[3], ` ${piece.what}`);
    });
  }

  function show(pieces) {
    bar(byId("account-bar"), pieces);
    keyed(byId("account-rows"), pieces, (piece) => piece.name, () => make("tr", {}, make("td", {}, dot(), " ", make("span")), make("td", {class: "n"}), make("td", {class: "n"}), make("td", {class: "what"})), (row, piece) => {
      const [name, took, share, what] = row.children;
      attribute(name.firstChild.firstChild, "class", colour(piece));
      text(name.lastChild, piece.name);
      text(took, seconds(piece.seconds));
      text(share, percent(piece.share));
      text(what, piece.what);
    });
  }

  /** `[[from, to, share], ...]` between cumulative samples `[unix, productive, wall]`. */
  function shares(samples) {
    const found = [];
    for (let i = 1; i < samples.length; i++) {
      const [at, made, wall] = samples[i], [before, made_, wall_] = samples[i - 1];
      if (at > before && wall > wall_) found.push([before, at, Math.min(1, Math.max(0, (made - made_) / (wall - wall_)))]);
    }
    return found;
  }

  /** Cumulative samples, as above, from the timeline's rows: of a short job, which has few samples of its own. */
  function sampled(data, count = 120) {
    const productive = data.causes.findIndex(([name]) => name === "productive"), step = Math.max(1, data.end / count);
    const made = new Array(count + 1).fill(0), wall = new Array(count + 1).fill(0);
    for (const [, seats, flat, end] of data.rows) {
      const weight = seats.reduce((sum, [first, last]) => sum + last - first + 1, 0) || 1;
      let at = 0;
      for (let i = 0; i < flat.length; i += 2) {
        at += flat[i];
        const until = i + 2 < flat.length ? at + flat[i + 2] : end, name = data.causes[flat[i + 1]][0];
        if (!name || name === "unknown") continue;
        for (let bin = Math.floor(at / step); bin < count && bin * step < until; bin++) {
          const shared = weight * (Math.min(until, (bin + 1) * step) - Math.max(at, bin * step));
          wall[bin + 1] += shared;
          if (flat[i + 1] === productive) made[bin + 1] += shared;
        }
      }
    }
    for (let bin = 1; bin <= count; bin++) { made[bin] += made[bin - 1]; wall[bin] += wall[bin - 1]; }
    return made.map((each, bin) => [data.began + bin * step / 10, each / 10, wall[bin] / 10]);
  }

  function overTime(samples, timeline) {
    const known = samples.filter((each) => each.every(isNumber)), svg = byId("over"), range = byId("over-range");
    const list = shares(known.length < FEW && timeline ? sampled(timeline) : known);
    if (!list.length) { svg.replaceChildren(); text(range, "There are no samples yet: one is taken each minute."); return; }
    const from = list[0][0], until = list[list.length - 1][1], span = until - from;
    const x = (at) => (1000 * (at - from) / span).toFixed(1), y = (share) => (200 - 200 * share).toFixed(1);
    const steps = list.map(([a, b, share]) => `L${x(a)} ${y(share)}L${x(b)} ${y(share)}`).join("");
    if (svg.children.length !== 2) svg.replaceChildren(make("path", {class: "area"}), make("path", {class: "edge"}));
    attribute(svg.children[0], "d", `M0 200${steps}L1000 200Z`);
    attribute(svg.children[1], "d", `M${steps.slice(1)}`);
    const last = list[list.length - 1][2];
    attribute(svg, "aria-label", `Share of new steps over time, ${percent(last)} last`);
    text(range, `${onAxis(from, span)} to ${onAxis(until, span)}; last ${percent(last)}`);
  }

  const short = (value) => isNumber(value) ? String(Number(value.toPrecision(4))) : "–";

  /** The numbers of the log over time, each in a box of its own; the path is ready. */
  function curves(list, found) {
    keyed(list, found, (curve) => curve.name, () => make("figure", {}, make("figcaption", {}, make("b"), make("span")), make("svg", {viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img"}, make("path", {class: "curve"})), make("p", {class: "range"})), (figure, curve) => {
      const [caption, svg, range] = figure.children, span = curve.end - curve.begin;
      const words = `${short(curve.newest)} at last, ${short(curve.low)} to ${short(curve.high)}`;
      text(caption.firstChild, curve.name); text(caption.lastChild, ` ${words}`);
      attribute(svg, "aria-label", `${curve.name} over time: ${words}`);
      attribute(svg.firstChild, "d", curve.path);
      text(range, `${onAxis(curve.begin, span)} to ${onAxis(curve.end, span)}`);
    });
  }

  return {bar, key, curves, short, show, overTime, shares, sampled, dot, colour};
})();
if (typeof module !== "undefined") module.exports = Account;
