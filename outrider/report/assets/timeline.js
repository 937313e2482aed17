// The timeline of a job: pure functions over its data, and `mount`, which draws it into a page.
//
// data = {began, end, causes: [[name, class]], rows: [[label, [[first, last]], [gap, cause, ...], end]],
//         generations: [[at, name, members, ranks]], holders: [[at, index, member, node]], names: [text],
//         faults: [[at, number, kind, index or null]]}
// Times are tenths of a second since `began`, a Unix time. A view is {from, to, first, last}: times and rows, ends excluded.
"use strict";
const Timeline = (() => {
  const UNITS = [1, 2, 5, 10, 20, 50, 100, 150, 300, 600, 1200, 3000, 6000, 9000, 18000, 36000, 72000, 108000, 216000, 432000, 864000];
  const LEAST = 5, AXIS = 34, LEFT = 64, FAULTS = 16;

  // -- pure ----------------------------------------------------------------------------------------------------------
  /** Rows with the beginning and the cause of each span. */
  function rows(data) {
    return data.rows.map(([label, seats, flat, end]) => {
      const starts = [], causes = [];
      let at = 0;
      for (let i = 0; i < flat.length; i += 2) { at += flat[i]; starts.push(at); causes.push(flat[i + 1]); }
      return {label, seats, starts, causes, end};
    });
  }

  /** The place of the span at a time; -1: there is none. */
  function spanAt(row, at) {
    let low = 0, high = row.starts.length;
    while (low < high) { const middle = (low + high) >> 1; if (row.starts[middle] <= at) low = middle + 1; else high = middle; }
    return at < row.end ? low - 1 : -1;
  }

  const untilOf = (row, span) => span + 1 < row.starts.length ? row.starts[span + 1] : row.end;
  const whole = (data, count) => ({from: 0, to: Math.max(data.end, LEAST), first: 0, last: count});
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  /** The view of so much time, with its beginning within the job. */
  function within(view, data, count) {
    const end = Math.max(data.end, LEAST), length = clamp(view.to - view.from, Math.min(LEAST, end), end);
    const from = clamp(view.from, 0, end - length);
    const shown = clamp(view.last - view.first, 1, count), first = clamp(view.first, 0, count - shown);
    return {from, to: from + length, first, last: first + shown};
  }

  /** The view with `factor` times as much time, around a moment. */
  function zoomed(view, factor, at) {
    return {...view, from: at - (at - view.from) * factor, to: at + (view.to - at) * factor};
  }

  /** The times of at most `most` ticks. */
  function ticks(from, to, most) {
    const unit = UNITS.find((each) => (to - from) / each <= most) || 864000 * Math.ceil((to - from) / 864000 / most);
    const found = [];
    for (let at = Math.ceil(from / unit) * unit; at <= to; at += unit) found.push(at);
    return found;
  }

  /** A duration in tenths of a second, as text. */
  function duration(tenths) {
    const seconds = tenths / 10;
    if (seconds < 60) return `${seconds.toFixed(1)} s`;
    const minutes = Math.floor(Math.round(seconds) / 60);
    if (minutes < 60) return `${minutes} min ${String(Math.round(seconds) % 60).padStart(2, "0")} s`;
    return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
  }

  /** The member and node that had a rank index at a time. */
  function holderAt(data, index, at) {
    let found = null;
    for (const each of data.holders) if (each[1] === index && each[0] <= at) found = each;
    return found && {member: data.names[found[2]], node: data.names[found[3]]};
  }

  function generationAt(data, at) {
    let found = null;
    for (const each of data.generations) if (each[0] <= at) found = each;
    return found;
  }

  /** What is known of a place, as a sentence. */
  function sentence(data, list, number, at, clock) {
    const row = list[number], span = row ? spanAt(row, at) : -1;
    if (span < 0) return "";
    const from = row.starts[span], until = untilOf(row, span), cause = data.causes[row.causes[span]][0];
    const index = row.seats.length ? row.seats[0][0] : 0, holder = holderAt(data, index, at), generation = generationAt(data, at);
    const who = holder ? ` (${index} is ${holder.member}${holder.node ? ` on ${holder.node}` : ""})` : "";
    const when = `${clock(data.began + from / 10)} to ${clock(data.began + until / 10, true)}, ${duration(until - from)}`;
    const of = generation ? `, generation ${generation[1]}` : "";
    return `Rank index ${row.label}${who}: ${cause || "not part of the job"}, ${when}${of}.`;
  }

  /** Calls `paint(cause, x, y, width, height, isShort)` for each visible span; what lasts less than a pixel comes last. */
  function painted(list, view, box, paint) {
    const height = box.height / (view.last - view.first), scale = box.width / (view.to - view.from), short = [];
    const gap = height > 8 ? 1 : 0, top = (number) => box.top + Math.round((number - view.first) * height);
    for (let number = view.first; number < view.last; number++) {
      const row = list[number], y = top(number), tall = Math.max(1, top(number + 1) - y - gap);
      for (let span = Math.max(0, spanAt(row, view.from)); span < row.starts.length && row.starts[span] < view.to; span++) {
        const from = Math.max(row.starts[span], view.from), until = Math.min(untilOf(row, span), view.to);
        if (until <= from) continue;
        const width = (until - from) * scale, drawn = [row.causes[span], box.left + (from - view.from) * scale, y, Math.max(1, width), tall];
        if (width < 1) short.push(drawn); else paint(...drawn);
      }
    }
    for (const drawn of short) paint(...drawn, true);
  }

  // -- the page ------------------------------------------------------------------------------------------------------
  /** Draws into `root`'s canvas. `clock(unix, isShort)` is a time as text; `choose(number)` is called for a fault.
   *  Returns `update(data)`, which draws newer data and keeps what is enlarged, and `close()`. */
  function mount(root, data, clock, choose) {
    const canvas = root.querySelector("canvas"), readout = root.querySelector("#readout"), details = root.querySelector("#details");
    let list = rows(data);
    let view = whole(data, list.length), cursor = null, drag = null;

    const height = () => clamp(list.length * 18, 60, 560);
    const box = () => ({left: LEFT, top: AXIS + FAULTS, width: Math.max(50, canvas.clientWidth - LEFT), height: height()});
    const timeAt = (x, b) => view.from + (x - b.left) / b.width * (view.to - view.from);
    const rowAt = (y, b) => view.first + Math.floor((y - b.top) / b.height * (view.last - view.first));
    const xOf = (at, b) => b.left + (at - view.from) / (view.to - view.from) * b.width;
    const inside = (at) => at >= view.from && at <= view.to;

    function draw() {
      const b = box(), ratio = window.devicePixelRatio || 1, total = b.top + b.height;
      canvas.style.height = `${total}px`;
      canvas.width = Math.round(canvas.clientWidth * ratio); canvas.height = Math.round(total * ratio);
      const context = canvas.getContext("2d"), style = getComputedStyle(root), named = (name) => style.getPropertyValue(`--${name}`).trim();
      const colours = data.causes.map(([, name]) => named(name.slice(2)));
      context.scale(ratio, ratio);
      context.font = "12px system-ui, sans-serif";
      paint(context, b, colours);
      axis(context, b, named); labels(context, b, named);
      context.strokeStyle = named("text"); context.globalAlpha = 0.55;
      for (const [at] of data.generations) if (inside(at)) line(context, Math.round(xOf(at, b)) + 0.5, b.top, total);
      context.globalAlpha = 1; context.fillStyle = context.strokeStyle = named("bad");
      for (const [at, , , index] of data.faults) if (inside(at)) mark(context, xOf(at, b), b, index);
      if (cursor && !drag) { context.strokeStyle = named("accent"); line(context, cursor.x, b.top, total); }
      if (drag) { context.strokeStyle = named("accent"); context.strokeRect(drag.x, drag.tall ? drag.y : b.top, cursor.x - drag.x, drag.tall ? cursor.y - drag.y : b.height); }
    }

    /** Fills the spans of each colour at once, which is much faster than one after the other. */
    function paint(context, b, colours) {
      const paths = new Map();
      painted(list, view, b, (cause, x, y, width, tall, isShort) => {
        const key = `${isShort ? "short" : "long"} ${cause}`;
        if (!paths.has(key)) paths.set(key, [cause, new Path2D()]);
        paths.get(key)[1].rect(x, y, width, tall);
      });
      for (const [cause, path] of paths.values()) { context.fillStyle = colours[cause]; context.fill(path); }
    }

    function line(context, x, from, to) { context.beginPath(); context.moveTo(x, from); context.lineTo(x, to); context.stroke(); }

    function mark(context, x, b, index) {
      context.beginPath(); context.moveTo(x - 6, b.top - 13); context.lineTo(x + 6, b.top - 13); context.lineTo(x, b.top - 2); context.fill();
      const number = list.findIndex((row) => row.seats.some(([first, last]) => first <= index && index <= last));
      if (index === null || number < view.first || number >= view.last) return;
      const tall = b.height / (view.last - view.first), y = b.top + (number - view.first) * tall;
      context.lineWidth = 2; context.strokeRect(x - 3, y, 6, Math.max(3, tall - 1)); context.lineWidth = 1;
    }

    function axis(context, b, named) {
      context.fillStyle = context.strokeStyle = named("faint"); context.textAlign = "left"; context.textBaseline = "top";
      let free = b.left - 1, before = "";
      for (const at of ticks(view.from, view.to, Math.max(2, Math.floor(b.width / 90)))) {
        const x = xOf(at, b), text = clock(data.began + at / 10, true), width = context.measureText(text).width;
        if (text === before) continue;  // less than a second later
        before = text;
        line(context, Math.round(x) + 0.5, 26, 32);
        const left = clamp(x - width / 2, b.left, b.left + b.width - width);
        if (left > free) { context.fillText(text, left, 10); free = left + width + 10; }
      }
    }

    function labels(context, b, named) {
      const tall = b.height / (view.last - view.first), every = Math.max(1, Math.ceil(13 / tall));
      context.fillStyle = named("faint"); context.textAlign = "right"; context.textBaseline = "middle";
      for (let number = view.first; number < view.last; number += every) {
        const text = list[number].label, fits = text.length > 9 ? `${text.slice(0, 8)}…` : text;
        context.fillText(fits, b.left - 6, b.top + (number - view.first + 0.5) * tall);
      }
    }

    function show(next) { view = within(next, data, list.length); draw(); }

    function place(event) {
      const bounds = canvas.getBoundingClientRect();
      return {x: event.clientX - bounds.left, y: event.clientY - bounds.top};
    }

    function faultAt(x, b) {
      const near = data.faults.filter(([at]) => inside(at)).map((each) => [Math.abs(xOf(each[0], b) - x), each]).filter(([far]) => far < 8);
      return near.length ? near.sort((one, other) => one[0] - other[0])[0][1] : null;
    }

    function described() {
      const b = box(), fault = cursor.y < b.top ? faultAt(cursor.x, b) : null;
      if (fault) return `Fault ${fault[1]}: ${fault[2]}, ${clock(data.began + fault[0] / 10)}.`;
      return sentence(data, list, rowAt(cursor.y, b), timeAt(cursor.x, b), clock);
    }

    canvas.addEventListener("pointermove", (event) => {
      cursor = place(event);
      if (drag) drag.tall = list.length > 8 && Math.abs(cursor.y - drag.y) > 24;
      readout.textContent = described();
      draw();
    });
    canvas.addEventListener("pointerleave", () => { if (!drag) { cursor = null; readout.textContent = ""; draw(); } });
    canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); cursor = place(event); drag = {...place(event), tall: false}; });
    canvas.addEventListener("pointercancel", () => { drag = null; draw(); });
    canvas.addEventListener("pointerup", (event) => {
      const b = box(), end = place(event), begin = drag;
      drag = null; cursor = end;
      if (!begin) return;
      if (Math.abs(end.x - begin.x) < 6 && !begin.tall) { click(b); return; }
      const times = [timeAt(begin.x, b), timeAt(end.x, b)].sort((one, other) => one - other);
      const ys = [rowAt(begin.y, b), rowAt(end.y, b)].sort((one, other) => one - other);
      const chosen = Math.abs(end.x - begin.x) < 6 ? [view.from, view.to] : times;
      show({from: Math.max(0, chosen[0]), to: chosen[1], ...(begin.tall ? {first: Math.max(view.first, ys[0]), last: Math.min(view.last, ys[1] + 1)} : {first: view.first, last: view.last})});
    });

    function click(b) {
      const fault = cursor.y < b.top ? faultAt(cursor.x, b) : null;
      if (fault) { choose(fault[1]); return; }
      const text = described();
      details.hidden = !text; details.textContent = text;
      const near = faultAt(cursor.x, b);
      if (text && near) {
        const link = document.createElement("a");
        link.href = `#fault-${Number(near[1])}`; link.textContent = ` Fault ${near[1]}: ${near[2]}`;
        details.append(link);
      }
    }

    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      show(zoomed(view, event.deltaY > 0 ? 1.25 : 0.8, timeAt(place(event).x, box())));
    }, {passive: false});

    const middle = () => (view.from + view.to) / 2;
    const moved = (by) => ({...view, from: view.from + by * (view.to - view.from), to: view.to + by * (view.to - view.from)});
    const does = {
      in: () => zoomed(view, 0.5, middle()), out: () => ({...zoomed(view, 2, middle()), first: view.first * 2 - view.last, last: view.last * 2 - view.first}),
      left: () => moved(-0.5), right: () => moved(0.5), all: () => whole(data, list.length),
    };
    /** Moves the cursor by rows and by spans, for the keyboard. */
    function point(rowsBy, spansBy) {
      const b = box(), tall = b.height / (view.last - view.first);
      if (!cursor) cursor = {x: b.left + b.width / 2, y: b.top + tall / 2};
      else cursor = {x: cursor.x, y: clamp(cursor.y + rowsBy * tall, b.top, b.top + b.height - 1)};
      const row = list[rowAt(cursor.y, b)];
      if (spansBy && row) {
        const span = clamp(spanAt(row, timeAt(cursor.x, b)) + spansBy, 0, row.starts.length - 1);
        cursor.x = clamp(xOf((row.starts[span] + untilOf(row, span)) / 2, b), b.left, b.left + b.width);
      }
      readout.textContent = described();
      draw();
    }

    const pointing = {ArrowUp: [-1, 0], ArrowDown: [1, 0], PageUp: [0, -1], PageDown: [0, 1]};
    const keys = {"+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", "0": "all", Escape: "all"};
    for (const button of root.querySelectorAll("button")) button.addEventListener("click", () => show(does[button.dataset.do]()));
    canvas.addEventListener("keydown", (event) => {
      const name = keys[event.key];
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (name) { event.preventDefault(); show(does[name]()); if (cursor) readout.textContent = described(); }
      else if (pointing[event.key]) { event.preventDefault(); point(...pointing[event.key]); }
      else if (event.key === "Enter" && cursor) click(box());
    });
    const sized = new ResizeObserver(draw), scheme = matchMedia("(prefers-color-scheme: dark)");
    sized.observe(canvas.parentElement);
    scheme.addEventListener("change", draw);
    draw();

    return {
      update(newer) {
        const isWhole = view.from <= 0 && view.to >= data.end && view.last - view.first === list.length;
        data = newer;
        list = rows(data);
        show(isWhole ? whole(data, list.length) : view);
      },
      close() { sized.disconnect(); scheme.removeEventListener("change", draw); },
    };
  }

  return {rows, spanAt, within, zoomed, whole, ticks, duration, holderAt, generationAt, sentence, painted, mount};
})();
if (typeof module !== "undefined") module.exports = Timeline;
