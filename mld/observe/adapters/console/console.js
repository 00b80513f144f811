"use strict";
// Draws /api/fleet. Every text comes from tables that others write, so nothing is parsed as HTML.

const RANK = { ok: 0, info: 1, warning: 2, critical: 3 };
const WORDS = ["critical", "warning", "info", "ok"];
const ROW_PX = 26;
const MOST_COLUMNS = 24;
const MOST_STREAMS = 12;
const LONG_NAME = 24;
const state = { fleet: null, shards: [], sort: "state", down: true, open: null, opener: null,
  hits: [], failed: null, arrivedAt: 0, offsetS: 0, shared: 0 };

const $ = (id) => document.getElementById(id);

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((one) => one !== null && one !== undefined && one !== false));
  return node;
}

function svg(tag, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// -- words ------------------------------------------------------------------------------------------

const two = (number) => String(number).padStart(2, "0");

function clock(atS, withDay = false) {
  const at = new Date(atS * 1000);
  const now = new Date(state.fleet ? state.fleet.at_s * 1000 : Date.now());
  const day = withDay || now.toDateString() !== at.toDateString();
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return day ? `${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}` : time;
}

function timed(atS) {
  return el("time", { datetime: new Date(atS * 1000).toISOString(), title:
    new Date(atS * 1000).toISOString() }, clock(atS));
}

function lasted(seconds) {
  if (seconds < 1) return "0 s";
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${+(seconds / 3600).toFixed(1)} h`;
  return `${+(seconds / 86400).toFixed(1)} d`;
}

const many = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
const amount = (number) => (number >= 100 ? Math.round(number).toLocaleString("en")
  : number.toFixed(1));
const orDash = (value, shown) => (value === null || value === undefined ? "–" : shown(value));
/** A shard id without its zeros; in a table of many streams with the stream's name. */
function brief(key) {
  const parts = key.split(":");
  const id = parts.pop().replace(/^shardId-0*(?=\d)/, "shard ");
  return parts.length ? `${parts[1] ?? parts[0]} ${id}` : id;
}

/** Ids of workers often differ only at their end: the beginning that they share is left out of long
 *  ones, but never the last twelve characters. */
function shareOf(names) {
  const long = [...new Set(names)].filter((one) => one.length > LONG_NAME);
  if (long.length < 2) return 0;
  const [first, last] = [long.reduce((a, b) => (a < b ? a : b)), long.reduce((a, b) => (a > b ? a : b))];
  let shared = 0;
  while (shared < first.length && first[shared] === last[shared]) shared += 1;
  return shared;
}

function shortName(name) {
  const cut = name.length > LONG_NAME ? Math.min(state.shared, name.length - 12) : 0;
  return cut > 1 ? `…${name.slice(cut)}` : name;
}

function happened(event) {
  const { kind, subject, before, after } = event;
  const lease = () => shardLink(subject, brief(subject));
  const who = (name) => el("span", { class: "id" }, name ?? "nobody");
  const sentences = {
    LEASE_TAKEN: () => [who(after), " took ", lease(), ...(before ? [" from ", who(before)] : [])],
    LEASE_RELEASED: () => [who(before), " let go of ", lease()],
    HAND_OFF_BEGUN: () => [who(before), " is to hand ", lease(), " over to ", who(after)],
    HANDED_OVER: () => [who(before), " handed ", lease(), " over to ", who(after)],
    SHARD_FINISHED: () => [lease(), " was read to its end", ...(before ? [" by ", who(before)] : [])],
    SHARD_APPEARED: () => [lease(), " appeared in the stream"],
    LEASE_CREATED: () => [lease(), " got a row", ...(after ? [", owned by ", who(after)] : [])],
    LEASE_DELETED: () => ["the row of ", lease(), " was deleted"],
    CHECKPOINT_REWOUND: () => [lease(), ` went back from ${before} to ${after}`],
    WORKER_APPEARED: () => [who(subject), " appeared"],
    WORKER_SILENT: () => [who(subject), " is silent"],
    LEADER_CHANGED: () => [who(after), " leads", ...(before ? [" after ", who(before)] : [])],
  };
  const bad = kind === "WORKER_SILENT" ? "critical" : kind === "CHECKPOINT_REWOUND" ? "warning" : "";
  const known = sentences[kind] ?? (() => [`${kind} ${subject}`]);
  return el("li", { "data-kind": kind }, timed(event.time_s),
    el("span", { class: bad }, ...known()));
}

function severity(word, text) {
  return el("span", { class: `severity ${word}` }, text,
    el("span", { class: "hidden" }, ` (${word})`));
}

function shardLink(key, text) {
  return el("button", { type: "button", class: "link", title: key, "data-key": key,
    onclick: (event) => openShard(key, event.currentTarget) }, text);
}

// -- drawing ----------------------------------------------------------------------------------------

/** Replace children only when they changed, and leave the focus where it was. */
const drawn = new Map();
function fill(id, value, make) {
  const text = JSON.stringify(value);
  if (drawn.get(id) === text) return;
  drawn.set(id, text);
  const parent = $(id);
  const focused = parent.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  parent.replaceChildren(...make());
  if (focused) parent.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

function draw() {
  performance.clearMeasures("redraw");
  const began = performance.now();
  const fleet = state.fleet;
  $("application").textContent = fleet.application;
  $("table").textContent = fleet.table === fleet.application ? "" : `table ${fleet.table}`;
  document.title = `${fleet.severity === "critical" ? "◆ " : fleet.severity === "warning" ? "▲ " : ""}`
    + `${fleet.application} – kcl-mld console`;
  state.shared = shareOf([...fleet.workers.map((one) => one.worker),
    ...fleet.shards.map((one) => one.owner).filter(Boolean)]);
  drawCounts(fleet);
  drawProblems(fleet);
  drawWorkers(fleet);
  drawTime(fleet);
  fill("event-list", [fleet.events.at(-1) ?? null, fleet.events.length], () =>
    (fleet.events.length ? fleet.events.slice(-200).reverse().map(happened)
      : [el("li", { class: "dim" }, "", "Nothing has happened since this console looks.")]));
  drawLineage(fleet);
  drawTable();
  if (state.open) drawDetail();
  performance.measure("redraw", { start: began, end: performance.now() });
}

function drawCounts(fleet) {
  const counts = Object.fromEntries(WORDS.map((word) => [word, 0]));
  for (const one of [...fleet.fleet, ...fleet.shards]) counts[one.severity] += 1;
  fill("counts", counts, () => WORDS.filter((word) => counts[word] || word === "critical")
    .map((word) => el("span", { class: counts[word] ? `severity ${word}` : "dim" },
      `${counts[word].toLocaleString("en")} ${word}`)));
}

function drawProblems(fleet) {
  const bad = [...fleet.fleet, ...fleet.shards].filter((one) => RANK[one.severity] >= 2);
  const groups = new Map();
  for (const one of bad) {
    // One cause has many shards: a worker that is silent, or the same that happens to each.
    const who = one.owner && one.cause.includes(one.owner) ? one.owner : "";
    const name = `${one.severity} ${one.verdict} ${who}`;
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(one);
  }
  const found = [...groups.values()].sort((a, b) => RANK[b[0].severity] - RANK[a[0].severity]
    || b.length - a.length);
  const more = found.splice(8);
  $("attention").classList.toggle("well", bad.length === 0);
  fill("problems", [more.length, ...found.map((group) => [group[0], group.length])], () =>
    (bad.length ? found.map(problem).concat(more.length ? [el("li", { class: "dim" },
      `And ${more.flat().length} more in the table below.`)] : [])
      : [el("li", { class: "ok severity" }, "All well: nothing needs a person.")]));
}

function problem(group) {
  const [first] = group;
  const isShard = "shard" in first;
  const since = first.since_s === null ? "" : ` Seen so for ${lasted(first.since_s)}.`;
  return el("li", { class: `is-${first.severity}` },
    el("p", { class: "what" }, severity(first.severity, first.verdict),
      isShard ? el("span", { class: "dim" }, many(group.length, "shard")) : el("span",
        { class: "id" }, first.subject)),
    advice("Why", first.cause, since), first.do ? advice("Do", first.do) : null,
    isShard ? el("p", { class: "links" }, ...group.slice(0, 8).map((one) =>
      shardLink(one.subject, brief(one.subject))), group.length > 8
      ? el("span", { class: "dim" }, `and ${group.length - 8} more`) : null) : null);
}

/** As kcl-mld explain prints it. */
const advice = (word, text, since = "") => el("p", {}, el("b", {}, `${word}: `), `${text}.${since}`);

function drawWorkers(fleet) {
  const most = Math.max(1, ...fleet.workers.map((one) => one.leases));
  const lags = lagsOf(fleet.shards);
  const grouped = fleet.workers.some((one) => one.group);
  $("worker-table").classList.toggle("grouped", grouped);
  fill("facts", fleet.facts, () => fleet.facts.map((one) => el("li", {}, one)));
  fill("worker-rows", [state.shared, ...fleet.workers.map((one) => ({ ...one, metrics_age_s: null,
    lag: lags.get(one.worker) && lasted(lags.get(one.worker).lag_s) }))], () =>
    (fleet.workers.length ? fleet.workers.map((one) => worker(one, most, lags.get(one.worker)))
      : [el("tr", {}, el("td", { colspan: 7, class: "dim" }, "No worker is seen."))]));
}

/** The shard that is furthest behind, of those of each worker whose lag is known. */
function lagsOf(shards) {
  const lags = new Map();
  for (const one of shards) {
    if (one.owner && one.lag_s !== null && !(one.lag_s <= lags.get(one.owner)?.lag_s)) {
      lags.set(one.owner, one);
    }
  }
  return lags;
}

function worker(one, most, furthest) {
  const word = one.lives === true ? "ok" : one.lives === false ? "critical" : "info";
  const text = one.lives === true ? (one.silent ? `renews, not ${one.silent}` : "alive")
    : one.lives === false ? "silent" : "not known yet";
  const bar = el("span", { class: one.lives === false ? "bar silent" : "bar" });
  bar.style.width = `${100 * one.leases / most}%`;
  return el("tr", {},
    el("th", { scope: "row", class: "id", title: one.worker }, shortName(one.worker),
      one.leads ? el("span", { class: "leader" }, "leader") : null),
    el("td", {}, severity(word, text)),
    el("td", { class: "wide" }, `${one.leases} `.padStart(5, "\u2007"),
      el("span", { class: "bars", "aria-hidden": "true" }, bar)),
    el("td", { class: "number" }, furthest ? el("span", { title: `${furthest.subject}, `
      + asked(furthest) }, lasted(furthest.lag_s)) : "–"),
    el("td", { class: "number" }, orDash(one.throughput_kbps, amount)),
    el("td", { class: "number" }, orDash(one.cpu_percent, (cpu) => `${Math.round(cpu)} %`)),
    el("td", { class: "group", title: one.group }, one.group ?? "–"));
}

// -- time -------------------------------------------------------------------------------------------

function drawTime(fleet) {
  const points = fleet.history;
  const [first, last] = [points[0], points.at(-1)];
  $("span").textContent = first === last ? "" : `${clock(first.at_s)} – ${clock(last.at_s)}`;
  const moved = points.reduce((sum, one) => sum + one.moved, 0);
  $("charts").replaceChildren(
    chart(points, "Largest lag", (one) => one.lag_s, lasted, "line",
      "not asked: start with --tip or --scrape"),
    chart(points, "Throughput", (one) => one.throughput_kbps, (value) => `${amount(value)} KiB/s`,
      "line", "no lease says it: workers of 3.x do"),
    chart(points, "Leases moved", (one) => one.moved, () => `${moved} in all`, "bars"),
    chart(points, "Shards that need a person", (one) => one.critical + one.warning,
      (value) => String(value), "areas"));
}

function chart(points, name, value, shown, kind, none) {
  const values = points.map(value);
  const known = values.filter((one) => one !== null);
  const last = known.at(-1);
  const box = el("div", { class: "chart" }, el("span", { class: "dim" }, name));
  if (!known.length) {
    box.append(el("span", { class: "dim" }, none));
    return box;
  }
  const most = known.reduce((a, b) => Math.max(a, b), 0);
  box.append(el("span", { class: "now" }, shown(last)));
  const label = `${name}: now ${shown(last)}, at most ${kind === "bars" ? most : shown(most)} at once`;
  const picture = svg("svg", { viewBox: "0 0 100 38", preserveAspectRatio: "none", role: "img",
    "aria-label": label });
  const begin = points[0].at_s;
  const span = Math.max(1, points.at(-1).at_s - begin);
  const x = (index) => (100 * (points[index].at_s - begin) / span).toFixed(2);
  const y = (number) => (36 - 33 * number / (most || 1)).toFixed(2);
  picture.append(svg("line", { x1: 0, x2: 100, y1: 36.5, y2: 36.5 }));
  if (kind === "bars") {
    values.forEach((one, index) => one && picture.append(svg("rect", { x: x(index) - 0.4,
      width: 0.8, y: y(one), height: 36 - y(one) })));
  } else if (kind === "areas") {
    area(picture, "area-warning", points.map((one) => one.critical + one.warning), x, y);
    area(picture, "area-critical", points.map((one) => one.critical), x, y);
  } else {
    let path = "";
    values.forEach((one, index) => {
      if (one === null) return;
      path += `${index && values[index - 1] !== null ? "L" : "M"}${x(index)} ${y(one)}`;
    });
    picture.append(svg("path", { d: path }));
  }
  box.append(picture);
  return box;
}

function area(picture, name, values, x, y) {
  let path = "M0 36";
  values.forEach((one, index) => { path += `L${x(index)} ${y(one)}`; });
  picture.append(svg("path", { class: name, d: `${path}L100 36Z` }));
}

// -- lineage ----------------------------------------------------------------------------------------

/** Columns: those from before this console by their depth, then one for each moment of a reshard. */
function columnsOf(lineage) {
  const byKey = new Map(lineage.map((one) => [one.subject, one]));
  const depths = new Map();
  const order = [];
  for (const one of lineage) {  // without recursion: a lineage may be long
    const stack = [one.subject];
    while (stack.length) {
      const key = stack.at(-1);
      const parents = byKey.get(key).parents.filter((each) => byKey.has(each));
      const left = parents.filter((each) => !depths.has(each) && !stack.includes(each));
      if (left.length && !depths.has(key)) { stack.push(...left); continue; }
      if (!depths.has(key)) {
        depths.set(key, Math.max(-1, ...parents.map((each) => depths.get(each) ?? -1)) + 1);
        order.push(key);
      }
      stack.pop();
    }
  }
  const places = [...new Set(lineage.map((one) => place(one, depths)))].sort((a, b) => a - b);
  const kept = places.slice(-MOST_COLUMNS);
  const at = new Map(places.map((one) => [one, Math.max(0, kept.indexOf(one))]));
  const columns = new Map(lineage.map((one) => [one.subject, at.get(place(one, depths))]));
  const times = kept.map((one) => (one >= 1e6 ? one : null));
  return { byKey, columns, times };
}

const place = (one, depths) => one.seen_at_s ?? depths.get(one.subject);

function layout(fleet) {
  const { byKey, columns, times } = columnsOf(fleet.lineage);
  const ends = new Map();
  for (const one of fleet.lineage) {
    for (const parent of one.parents) {
      if (!byKey.has(parent)) continue;
      const column = columns.get(one.subject);
      ends.set(parent, Math.min(ends.get(parent) ?? Infinity, column));
    }
  }
  const streams = [...new Set(fleet.lineage.map((one) => one.stream))];
  const verdicts = new Map(fleet.shards.map((one) => [one.subject, one]));
  const worst = new Map();
  for (const one of fleet.lineage) {
    const rank = RANK[verdicts.get(one.subject)?.severity] ?? 0;
    worst.set(one.stream, Math.max(worst.get(one.stream) ?? 0, rank));
  }
  streams.sort((a, b) => worst.get(b) - worst.get(a) || String(a).localeCompare(String(b)));
  return { columns, times, ends, streams, verdicts, count: Math.max(1, times.length) };
}

function drawLineage(fleet) {
  const canvas = $("picture");
  const made = layout(fleet);
  const shown = made.streams.slice(0, MOST_STREAMS);
  const width = canvas.clientWidth || 600;
  const least = fleet.lineage.reduce((share, one) => (one.hash_range ? Math.min(share,
    (Number(one.hash_range[1]) - Number(one.hash_range[0])) / 2 ** 128) : share), 1);
  // High enough for a label in each, where there are few.
  const band = Math.max(60, Math.min(shown.length > 1 ? 90 : 300, 17 / Math.max(least, 1e-6)));
  const head = 18;
  const above = shown.length > 1 ? 2 * head : head;
  const height = above + shown.length * (band + head) - head;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  const colors = Object.fromEntries(WORDS.map((word) => [word, color(`${word}-fill`)]));
  const paint = { colors, finished: color("finished-fill"), line: color("line"),
    text: color("text"), dim: color("dim"), panel: color("panel") };
  context.font = "11px system-ui, sans-serif";
  const step = width / made.count;
  state.hits = [];
  const tops = new Map(shown.map((stream, index) => [stream, above + index * (band + head)]));
  const boxes = [];
  for (const one of fleet.lineage) {
    const top = tops.get(one.stream);
    if (top === undefined || !one.hash_range) continue;
    const [from, to] = one.hash_range.map((each) => Number(each) / 2 ** 128);
    const x = made.columns.get(one.subject) * step;
    const right = (made.ends.get(one.subject) ?? made.count) * step;
    const told = made.verdicts.get(one.subject);
    boxes.push({ one, told, x, y: top + from * band, width: Math.max(step / 4, right - x),
      height: (to - from) * band, rank: RANK[told?.severity] ?? -1 });
  }
  boxes.sort((a, b) => a.rank - b.rank);
  const isDense = least * band < 2;
  for (const box of boxes) drawBox(context, box, paint, isDense);
  context.fillStyle = paint.dim;
  made.times.forEach((atS, index) => {
    if (atS) context.fillText(clock(atS), index * step + 3, 12);
  });
  context.fillText(made.times[0] ? "" : "before", 3, 12);
  if (shown.length > 1) {
    for (const stream of shown) context.fillText(stream?.split(":")[1] ?? "", 3, tops.get(stream) - 4);
  }
  drawTexts(fleet, made, shown.length);
}

function drawBox(context, box, paint, isDense) {
  const isDone = box.told?.verdict === "FINISHED";
  const gap = box.height > 4 ? 1 : 0;
  const height = box.height - gap;
  context.fillStyle = !box.told || isDone ? paint.finished : paint.colors[box.told.severity];
  if (isDense) {
    // Shards that are thinner than a pixel mix; each that needs a person has a mark at its end.
    context.fillRect(box.x, box.y, box.width - 14, height);
    if (box.rank >= 2) context.fillRect(box.x + box.width - 11, box.y, 9, Math.max(height, 1));
  } else {
    context.fillRect(box.x, box.y, box.width - 2, height);
  }
  state.hits.push({ ...box, height });
  if (height < 14 || box.width < 60) return;
  const name = brief(box.one.subject).split(" ").slice(-2).join(" ");
  const text = box.told ? `${name}  ${box.told.verdict}` : `${name}  no row`;
  context.save();
  context.beginPath();
  context.rect(box.x, box.y, box.width - 8, height);
  context.clip();
  context.fillStyle = box.rank === 3 ? "#fff" : box.rank === 2 ? "#1d1f21" : paint.text;
  context.fillText(text, box.x + 6, box.y + Math.min(height / 2 + 4, 15));
  context.restore();
}

function drawTexts(fleet, made, streams) {
  const children = new Map();
  for (const one of fleet.lineage) {
    if (one.parents.length) {
      const key = one.parents.length > 1 ? one.subject : one.parents[0];
      if (!children.has(key)) children.set(key, { parents: one.parents, found: [], at: one.seen_at_s });
      children.get(key).found.push(one.subject);
    }
  }
  const reshards = [...children.values()].sort((a, b) => (b.at ?? 0) - (a.at ?? 0));
  const merges = reshards.filter((one) => one.parents.length > 1).length;
  const left = made.streams.length - streams;
  $("picture").setAttribute("aria-label", `Lineage of ${many(fleet.lineage.length, "shard")}: `
    + `${many(reshards.length - merges, "split")}, ${many(merges, "merge")}. The table below has the `
    + "verdict of each shard.");
  fill("legend", left, () => [["critical", "critical"], ["warning", "warning"], ["info", "info"],
    ["ok", "ok"], ["finished", "read to its end, or without a row"]].map(([name, text]) => {
    const mark = el("i");
    mark.style.background = `var(--${name}-fill)`;
    return el("span", {}, mark, text);
  }).concat(left > 0 ? [el("span", {}, `${many(left, "stream")} without problems not drawn`)] : []));
  fill("reshards", reshards.slice(0, 60), () => reshards.slice(0, 60).map((one) => el("li", {},
    one.at ? timed(one.at) : "before", one.parents.length > 1
      ? ` merge of ${one.parents.map(brief).join(" and ")} into ${one.found.map(brief).join(", ")}`
      : ` split of ${brief(one.parents[0])} into ${one.found.map(brief).join(" and ")}`)));
}

function hit(event) {
  const bounds = $("picture").getBoundingClientRect();
  const [x, y] = [event.clientX - bounds.left, event.clientY - bounds.top];
  return state.hits.findLast((box) => x >= box.x && x <= box.x + box.width && y >= box.y - 1
    && y <= box.y + box.height + 1);
}

// -- the table --------------------------------------------------------------------------------------

const COLUMNS = [
  { name: "state", title: "Verdict", width: "21%", key: (one) => RANK[one.severity], text: true,
    cell: (one) => severity(one.severity, one.verdict) },
  { name: "shard", title: "Shard", width: "23%", key: (one) => one.subject,
    cell: (one) => shardLink(one.subject, one.stream ? brief(one.subject) : one.subject) },
  { name: "owner", title: "Owner", width: "18%", key: (one) => one.owner ?? "",
    cell: (one) => el("span", { class: one.owner ? "id" : "dim", title: one.owner ?? "" },
      one.owner ? shortName(one.owner) : "nobody") },
  { name: "lag", title: "Lag", width: "9%", number: true, key: (one) => one.lag_s ?? -1,
    cell: (one) => (one.lag_s === null ? "–" : el("span", { title: asked(one) }, lasted(one.lag_s))) },
  { name: "speed", title: "KiB/s", width: "9%", number: true,
    key: (one) => one.throughput_kbps ?? -1, cell: (one) => orDash(one.throughput_kbps, amount) },
  { name: "since", title: "For", width: "8%", number: true, key: (one) => one.since_s ?? -1,
    cell: (one) => orDash(one.since_s, lasted) },
  { name: "checkpoint", title: "Checkpoint", width: "12%", key: (one) => one.checkpoint ?? "",
    cell: (one) => el("span", { class: "id", title: one.checkpoint ?? "" },
      one.checkpoint ? tail(one.checkpoint) : "–") },
];
/** How old a lag is: one that the owner reports is of this look. */
const asked = (one) => (one.behind_s === null ? "as its worker reports it"
  : `the tip was asked ${lasted(one.behind_age_s)} before this look`);
const tail = (text) => (text.length > 14 ? `…${text.slice(-12)}` : text);

function drawColumns() {
  $("columns").replaceChildren(...COLUMNS.map((column) => {
    const direction = state.sort === column.name ? (state.down ? "descending" : "ascending") : null;
    const cell = el("th", { scope: "col", class: column.number ? "number" : "",
      "aria-sort": direction }, el("button", { type: "button", "data-column": column.name,
      onclick: () => sortBy(column.name) }, column.title));
    cell.style.width = column.width;
    return cell;
  }));
}

function sortBy(name) {
  state.down = state.sort === name ? !state.down : name !== "shard" && name !== "owner";
  state.sort = name;
  drawColumns();
  $("columns").querySelector(`[data-column=${name}]`).focus();
  drawTable();
}

function drawTable() {
  const words = $("words").value.toLowerCase().split(/\s+/).filter(Boolean);
  const least = Number($("least").value);
  const found = state.fleet.shards.filter((one) => RANK[one.severity] >= least && words.every(
    (word) => one.subject.toLowerCase().includes(word) || one.verdict.toLowerCase().includes(word)
      || (one.owner ?? "").toLowerCase().includes(word)));
  const { key } = COLUMNS.find((column) => column.name === state.sort);
  const sign = state.down ? -1 : 1;
  const keyed = found.map((one) => [key(one), one]);
  keyed.sort(([a, one], [b, other]) => (a < b ? -sign : a > b ? sign
    : one.subject < other.subject ? -1 : 1));
  state.shards = keyed.map(([, one]) => one);
  const all = state.fleet.shards.length;
  const text = found.length === all ? many(all, "shard") : `${found.length} of ${many(all, "shard")}`;
  if ($("shown").textContent !== text) $("shown").textContent = text;
  $("shard-table").setAttribute("aria-rowcount", found.length + 1);
  drawRows();
}

/** Only the rows that are in sight are in the page; the others are two empty ones of their height. */
function drawRows() {
  const view = $("rows");
  const count = state.shards.length;
  const first = Math.max(0, Math.min(Math.floor(view.scrollTop / ROW_PX) - 4, count - 1));
  const last = Math.min(count, first + Math.ceil((view.clientHeight || 600) / ROW_PX) + 10);
  const focused = $("shard-rows").contains(document.activeElement)
    ? document.activeElement.dataset.key : null;
  const rows = [pad(first)];
  for (let index = first; index < last; index += 1) {
    const one = state.shards[index];
    rows.push(el("tr", { "aria-rowindex": index + 2, "data-index": index,
      class: state.open === one.subject ? "is-open" : "" }, ...COLUMNS.map((column) =>
      el("td", { class: column.number ? "number" : "" }, column.cell(one)))));
  }
  $("shard-rows").replaceChildren(...rows, pad(count - last));
  if (focused) focusRow(focused);
}

function pad(rows) {
  if (rows <= 0) return document.createDocumentFragment();
  const cell = el("td", { colspan: COLUMNS.length });
  cell.style.height = `${rows * ROW_PX}px`;
  return el("tr", { class: "pad", "aria-hidden": "true" }, cell);
}

function focusRow(key) {
  $("shard-rows").querySelector(`button[data-key="${CSS.escape(key)}"]`)
    ?.focus({ preventScroll: true });
}

function walk(event) {
  const row = event.target.closest("tr[data-index]");
  const page = Math.max(1, Math.floor($("rows").clientHeight / ROW_PX) - 2);
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity,
    End: Infinity };
  if (!row || !(event.key in steps)) return;
  event.preventDefault();
  const wanted = Number(row.dataset.index) + steps[event.key];
  if (wanted === -1) return void $("words").focus();
  const index = Math.max(0, Math.min(state.shards.length - 1, wanted));
  const view = $("rows");
  const top = index * ROW_PX;
  const seen = view.clientHeight - 2 * ROW_PX;
  if (top < view.scrollTop) view.scrollTop = top;
  else if (top > view.scrollTop + seen) view.scrollTop = top - seen;
  drawRows();
  focusRow(state.shards[index].subject);
}

/** From the search into the rows that it found. */
function enterRows(event) {
  if (event.key !== "ArrowDown" || !state.shards.length) return;
  event.preventDefault();
  $("rows").scrollTop = 0;
  drawRows();
  focusRow(state.shards[0].subject);
}

// -- one shard --------------------------------------------------------------------------------------

function openShard(key, opener) {
  state.open = key;
  state.opener = opener ?? null;
  state.past = null;
  history.replaceState(null, "", `#shard=${encodeURIComponent(key)}`);
  drawn.delete("detail-body");
  $("detail").hidden = false;
  drawDetail();
  drawRows();
  $("detail-title").focus();
}

function closeShard() {
  if (!state.open) return;
  const key = state.open;
  state.open = null;
  history.replaceState(null, "", location.pathname);
  $("detail").hidden = true;
  drawRows();
  if (state.opener?.isConnected) state.opener.focus();
  else focusRow(key);
}

async function drawDetail() {
  const key = state.open;
  showDetail(key, state.past);
  const answer = await fetch(`/api/shard?key=${encodeURIComponent(key)}`).catch(() => null);
  if (state.open !== key || !answer?.ok) return;
  state.past = await answer.json();
  showDetail(key, state.past);
}

function showDetail(key, past) {
  const one = state.fleet.shards.find((each) => each.subject === key);
  const kin = state.fleet.lineage.find((each) => each.subject === key);
  $("detail-title").textContent = key;
  fill("detail-body", [one, kin, past], () => [
    ...(one ? paragraph(one) : [el("p", { class: "dim" }, "It has no row in the lease table.")]),
    ...(one ? [el("h3", {}, "Positions"), facts(positions(one))] : []),
    ...(kin ? [el("h3", {}, "Lineage"), facts(family(kin))] : []),
    ...(past ? pastOf(past) : []),
  ]);
}

function paragraph(one) {
  const since = one.since_s === null ? "" : ` Seen so for ${lasted(one.since_s)}.`;
  return [el("p", {}, severity(one.severity, one.verdict)), advice("Why", one.cause, since),
    one.do ? advice("Do", one.do) : null,
    el("p", { class: "dim" }, `More: ${one.link}`)].filter(Boolean);
}

const facts = (rows) => el("dl", {}, ...rows.filter(([, value]) => value !== null
  && value !== undefined && value !== "").flatMap(([name, value]) =>
  [el("dt", {}, name), el("dd", {}, ...[value].flat())]));

const positions = (one) => [
  ["Owner", one.owner ?? "nobody"], ["Next owner", one.next_owner], ["Checkpoint",
    one.checkpoint && el("span", { class: "id" }, one.checkpoint)],
  ["Pending", one.pending_checkpoint && el("span", { class: "id" }, one.pending_checkpoint)],
  ["Lag", one.lag_s === null ? "not asked, or not known" : `${lasted(one.lag_s)}, ${asked(one)}`],
  ["Throughput", one.throughput_kbps === null ? null : `${amount(one.throughput_kbps)} KiB/s`],
  ...ofPage(one.worker_page),
  ["Records/s", one.records_per_s === null ? null : amount(one.records_per_s)],
  ["Counter", one.counter], ["Owner changes", one.owner_switches === null ? null
    : `${one.owner_switches} since the checkpoint`],
];

const ofPage = (page) => (page === null ? [] : [["Consumer", page.state],
  ["Call", page.call && `${page.call}, without an answer for ${lasted(page.call_s)}`],
  ["Restarts", page.restarts], ["Exceptions", page.child_exceptions],
  ["Reading fails", page.reading_error && [page.reading_error, page.reading_todo].filter(Boolean).join("; ")],
  ["Last error", page.last_error],
  ["Unconfirmed", page.unconfirmed_s === null ? null : `for ${lasted(page.unconfirmed_s)}`],
  ...page.children.map((one) => [`Child ${one.child}`, childOf(one)])]);

const childOf = (one) => [one.pid === null ? "no process" : `pid ${one.pid}`,
  one.silent_s !== null && `no answer for ${lasted(one.silent_s)}`,
  one.unanswered > 0 && `${one.unanswered} records unanswered`,
  one.owes && `confirmed up to ${one.confirmed}`,
  one.is_left_out && "left out, reads again when it is ready",
  one.restarts > 0 && `${one.restarts} restarts`].filter(Boolean).join("; ");

function family(kin) {
  const children = state.fleet.lineage.filter((one) => one.parents.includes(kin.subject));
  const links = (keys) => keys.flatMap((key) => [shardLink(key, brief(key)), " "]);
  return [["Stream", kin.stream], ["Hash keys", kin.hash_range && el("span", { class: "id" },
    kin.hash_range.join(" – "))], ["In the stream", kin.is_former ? "no longer" : kin.is_open === null
    ? "not listed" : kin.is_open ? "open" : "closed"],
  ["First seen", kin.seen_at_s ? timed(kin.seen_at_s) : "before this console looked"],
  ["Parents", links(kin.parents)], ["Children", links(children.map((one) => one.subject))]].filter(
    ([, value]) => !(Array.isArray(value) && !value.length));
}

function pastOf(past) {
  const points = past.samples;
  const changes = past.changes.slice().reverse().map((one) => el("li", {}, timed(one.at_s),
    el("span", {}, severity(one.severity, one.verdict), el("span", { class: "dim" },
      ` ${one.owner ?? "nobody"}`))));
  return [el("h3", {}, "What this console has seen"),
    chart(points, "Lag", (one) => one.lag_s, lasted, "line",
      "not asked: start with --tip or --scrape"),
    chart(points, "Throughput", (one) => one.throughput_kbps, (value) => `${amount(value)} KiB/s`,
      "line", "not said"),
    el("ol", { class: "past" }, ...changes),
    ...(past.events.length ? [el("h3", {}, "Events"), el("ol", { class: "past" },
      ...past.events.slice().reverse().map(happened))] : [])];
}

// -- data -------------------------------------------------------------------------------------------

let loading = null;
let again = false;

async function load() {
  if (loading) { again = true; return; }
  loading = true;
  try {
    const answer = await fetch("/api/fleet");
    if (answer.ok) {
      state.fleet = await answer.json();
      state.failed = state.fleet.error && `The last look failed, so what you see is old: ${state.fleet.error}`;
      state.arrivedAt = Date.now();
      draw();
    } else if (answer.status === 401) {
      state.failed = "This console wants its token: open the address that kcl-mld console printed.";
    }
  } catch {
    state.failed = "The console does not answer: is kcl-mld console still running?";
  } finally {
    loading = null;
  }
  tell();
  if (again) { again = false; load(); }
}

/** How old it is what one sees. */
function tell() {
  $("stale").hidden = !state.failed;
  if ($("stale").textContent !== (state.failed ?? "")) $("stale").textContent = state.failed ?? "";
  if (!state.fleet) return;
  const ageS = (Date.now() - state.arrivedAt) / 1000;
  const tips = state.fleet.shards.map((one) => one.behind_age_s).filter((one) => one !== null);
  const oldest = tips.length ? ` · tips up to ${lasted(Math.max(...tips) + ageS)} old` : "";
  $("looked").textContent = `look ${state.fleet.look}, ${lasted(ageS)} ago · every `
    + `${state.fleet.interval_s} s · since ${clock(state.fleet.since_s)}${oldest}`;
}

function begin() {
  drawColumns();
  const events = new EventSource("/api/events");
  events.addEventListener("look", load);
  events.addEventListener("error", () => {
    state.failed = "The console does not answer: is kcl-mld console still running?";
    tell();
  });
  $("words").addEventListener("input", drawTable);
  $("words").addEventListener("keydown", enterRows);
  $("least").addEventListener("change", drawTable);
  $("filter").addEventListener("submit", (event) => event.preventDefault());
  $("rows").addEventListener("scroll", () => requestAnimationFrame(drawRows), { passive: true });
  $("rows").addEventListener("keydown", walk);
  $("close").addEventListener("click", closeShard);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") closeShard();
    if (event.key === "/" && !/INPUT|SELECT/.test(document.activeElement.tagName)) {
      event.preventDefault();
      $("words").focus();
    }
  });
  $("picture").addEventListener("click", (event) => {
    const box = hit(event);
    if (box) openShard(box.one.subject, null);
  });
  $("picture").addEventListener("mousemove", (event) => {
    const box = hit(event);
    $("picture").title = box ? `${box.one.subject} ${box.told?.verdict ?? "without a row"}` : "";
  });
  const redraw = () => state.fleet && draw();
  window.addEventListener("resize", () => requestAnimationFrame(redraw));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  setInterval(tell, 1000);
  load().then(() => {
    const key = decodeURIComponent(location.hash.match(/^#shard=(.+)/)?.[1] ?? "");
    if (key && state.fleet) openShard(key, null);
  });
}

begin();
