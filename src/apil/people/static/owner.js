// The owner's page: how the teaching goes, live.

import { get, listen, post } from "/static/api.js";

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const COLOURS = ["#0b66c3", "#d55e00", "#1f9d6b", "#c4629a", "#8a6d00", "#1e96b8"];
let due = null;
let paused = false;

function element(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function banner(text) {
  $("banner").textContent = text;
  $("banner").hidden = !text;
}

const percent = (share) => (share === null || share === undefined ? "–" : `${Math.round(100 * share)} %`);

async function refresh() {
  due = null;
  try {
    const response = await get("/api/owner/status");
    const found = await response.json();
    if (response.ok) show(found);
    else banner(found.error);
  } catch {
    banner("No connection. Trying again …");
    due = setTimeout(refresh, 2000);
  }
}

function show(found) {
  const training = found.training || {};
  $("title").textContent = `Teaching ${found.about.task || "an agent"}`;
  const last = found.curve[found.curve.length - 1];
  $("success").textContent = percent(training.success_alone ?? (last && last.success));
  $("answers").textContent = training.budget ? `${found.answers} of ${training.budget}` : found.answers;
  $("spent").value = training.budget ? Math.min(1, found.answers / training.budget) : 0;
  $("waiting").textContent = found.waiting;
  $("rate").textContent = percent(training.query_rate);
  paused = found.paused;
  $("pause").textContent = paused ? "Resume" : "Pause";
  if (found.stopping) banner("Stopping: the run is saved and can be resumed.");
  else if (!found.trainer) banner("The training has stopped. The server takes answers for one more minute; resume the run.");
  else banner(paused ? "Paused: nobody is asked." : "");
  showTeachers(found.teachers);
  showList($("agreement"), found.agreement, (pair) => `${pair.teachers.join(" and ")}: ${percent(pair.share)} of ${pair.alike}`);
  showList($("notes"), found.notes, (note) => `${note.teacher}: ${note.note}`);
  $("curve").replaceChildren(curve(found.curve, training.budget));
  $("personas").replaceChildren(map(training.personas || []));
}

function showList(list, rows, text) {
  const items = rows.length ? rows.map(text) : ["None yet."];
  list.replaceChildren(...items.map((words) => {
    const item = document.createElement("li");
    item.textContent = words;
    return item;
  }));
}

function showTeachers(teachers) {
  const rows = teachers.map((own) => {
    const row = document.createElement("tr");
    const dot = document.createElement("span");
    dot.className = own.here && !own.ended ? "dot here" : "dot";
    dot.title = own.here && !own.ended ? "there" : "away";
    const name = row.insertCell();
    name.append(dot, own.name);
    const seconds = own.seconds === null ? "–" : own.seconds.toFixed(1);
    for (const value of [own.answers, own.passed, own.corrections, own.flagged, seconds]) row.insertCell().textContent = value;
    const end = document.createElement("button");
    end.type = "button";
    end.textContent = own.ended ? "Ended" : "End";
    end.setAttribute("aria-label", `End the link of ${own.name}`);
    end.disabled = Boolean(own.ended);
    end.addEventListener("click", async () => {
      if (confirm(`End the link of ${own.name}? Their answers stay.`)) await post("/api/owner/end", { teacher: own.name });
      refresh();
    });
    row.insertCell().append(end);
    return row;
  });
  $("teachers").tBodies[0].replaceChildren(...rows);
}

function curve(points, budget) {
  const [wide, high, left, low] = [560, 260, 44, 34];
  const most = Math.max(budget || 0, ...points.map((point) => point.answers), 10);
  const x = (answers) => left + (answers / most) * (wide - left - 12);
  const y = (share) => 10 + (1 - share) * (high - low - 10);
  const made = element("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": "Success alone against answers" });
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    made.append(element("line", { x1: left, x2: wide - 12, y1: y(share), y2: y(share), stroke: "#e3e8ed", class: "grid" }));
    made.append(element("text", { x: left - 6, y: y(share) + 4, "text-anchor": "end" }, `${100 * share} %`));
  }
  for (const share of [0, 0.5, 1]) {
    made.append(element("text", { x: x(share * most), y: high - 14, "text-anchor": share === 1 ? "end" : "middle" }, `${Math.round(share * most)}`));
  }
  const line = points.map((point) => `${x(point.answers)},${y(point.success)}`).join(" ");
  made.append(element("polyline", { points: line, fill: "none", stroke: COLOURS[0], "stroke-width": 2.5, "stroke-linejoin": "round" }));
  for (const point of points) made.append(element("circle", { cx: x(point.answers), cy: y(point.success), r: 2.5, fill: COLOURS[0] }));
  return made;
}

function map(personas) {
  const [wide, high] = [560, 260];
  const made = element("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": "Map of personas" });
  const reach = Math.max(1e-9, ...personas.flatMap((own) => [Math.abs(own.x), Math.abs(own.y)]));
  personas.forEach((own, place) => {
    const x = wide / 2 + (own.x / reach) * (wide / 2 - 70);
    const y = high / 2 - (own.y / reach) * (high / 2 - 40);
    made.append(element("circle", { cx: x, cy: y, r: 8, fill: COLOURS[place % COLOURS.length] }));
    made.append(element("text", { x, y: y - 14, "text-anchor": "middle" }, own.name));
  });
  return made;
}

$("pause").addEventListener("click", async () => {
  await post("/api/owner/pause", { paused: !paused });
  refresh();
});
$("stop").addEventListener("click", async () => {
  if (confirm("Stop the training? It is saved and can be resumed; teachers keep their links.")) await post("/api/owner/stop", {});
  refresh();
});
listen("/api/owner/events", () => { due = due || setTimeout(refresh, 700); }, () => banner("No connection. Trying again …"));
refresh();
