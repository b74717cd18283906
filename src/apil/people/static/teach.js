// The teacher's page: one question at a time, answered by a key, a button or sliders.

import { Outbox, get, key, listen, post } from "/static/api.js";

const $ = (id) => document.getElementById(id);
const FRAME = 350; // milliseconds between two pictures of the last moves
let question = null;
let busy = false;
let given = 0;
let film = null;
let lastAnswer = null;

const outbox = new Outbox((what, status, said) => {
  if (what === "kept") return banner("No connection. Your answer is kept here and will be sent when the server is back.");
  if (status === 201) given += 1;
  if (status === 409) banner("This question had been closed meanwhile. Your answer is kept, but does not count.");
  else if (status === 401 || status === 403) invalid(said.error);
  else if (status >= 400) banner(said.error || "The server refused this answer.");
  else banner("");
  $("given").textContent = given;
});

function banner(text) {
  $("banner").textContent = text;
  $("banner").hidden = !text;
}

function idle(title, text) {
  question = null;
  $("desk").hidden = true;
  $("idle").hidden = false;
  $("idle-title").textContent = title;
  $("idle-text").textContent = text;
  $("undo-idle").hidden = given === 0;
}

function invalid(why) {
  idle("This link does not work", why || "Ask whoever sent it for a new one.");
  $("undo-idle").hidden = true;
}

async function load() {
  if (busy) return;
  busy = true;
  try {
    const response = await get("/api/question");
    if (response.status === 200) show(await response.json());
    else if (response.status === 204) idle("Nothing to answer just now", "Leave this page open: the next question appears by itself.");
    else if (response.status === 401 || response.status === 403) invalid((await response.json()).error);
  } catch {
    if (!question) idle("No connection", "Trying again …");
    setTimeout(load, 1000);
  } finally {
    busy = false;
  }
}

function show(found) {
  const same = question && question.id === found.id && question.kind === found.kind;
  question = found;
  $("idle").hidden = true;
  $("desk").hidden = false;
  $("waiting").textContent = found.waiting ?? $("waiting").textContent;
  if (same) return;
  const kinds = { correction: "Correct your last answer; skip leaves it as it is", review: "Review: nobody waits for this one" };
  $("kind").textContent = kinds[found.kind] || "";
  $("kind").hidden = !kinds[found.kind];
  $("words").textContent = found.text || "";
  $("words").hidden = !found.text;
  $("words").classList.toggle("drawn", (found.text || "").includes("\n"));
  showViews(found.views || []);
  showTable(found.table || []);
  showFilm(found);
  $("distance").hidden = !found.ask_distance;
  $("distance").classList.remove("missing");
  for (const radio of document.getElementsByName("distance")) radio.checked = false;
  if (found.continuous) showSliders(found);
  else showActions(found);
  $("sliders").hidden = !found.continuous;
  $("actions").hidden = found.continuous;
  if (found.continuous) $("sliders").querySelector("input").focus();
  showHint();
  tick();
}

const CROSS = ["up", "right", "down", "left"];

function showActions(found) {
  // Moves lie as they go; all else in two columns.
  const cross = found.actions.every((own) => CROSS.includes(own.name));
  $("actions").classList.toggle("cross", cross);
  $("actions").replaceChildren(
    ...found.actions.map((own) => {
      const button = document.createElement("button");
      button.type = "button";
      if (cross) button.classList.add(own.name);
      button.append(own.name, ...own.keys.slice(0, cross ? 1 : 2).map((name) => keyOf(name)));
      button.setAttribute("aria-keyshortcuts", own.keys.join(" "));
      if (found.kind === "correction" && lastAnswer && lastAnswer.question === found.id && lastAnswer.action === own.action) {
        button.classList.add("was");
      }
      button.addEventListener("click", () => answer(own.action));
      return button;
    }),
  );
}

function keyOf(name) {
  const arrows = { ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", Enter: "⏎" };
  const mark = document.createElement("kbd");
  mark.textContent = arrows[name] || name;
  return mark;
}

function showSliders(found) {
  const parts = found.actions.flatMap((side, place) => {
    const label = document.createElement("label");
    label.htmlFor = `slider-${place}`;
    label.textContent = side.name;
    const value = document.createElement("output");
    value.htmlFor = label.htmlFor;
    label.append(value);
    const slider = document.createElement("input");
    slider.type = "range";
    slider.id = label.htmlFor;
    slider.min = side.low;
    slider.max = side.high;
    slider.step = "any";
    slider.value = (side.low + side.high) / 2;
    const tell = () => { value.textContent = Number(slider.value).toFixed(2); };
    slider.addEventListener("input", tell);
    slider.addEventListener("keydown", (event) => nudge(event, slider, side, tell));
    tell();
    return [label, slider];
  });
  const send = document.createElement("button");
  send.type = "submit";
  send.append("Send", keyOf("Enter"));
  $("sliders").replaceChildren(...parts, send);
}

// Arrow keys move a slider by a twentieth of its range; with "any" as step browsers differ in what they do.
function nudge(event, slider, side, tell) {
  const ways = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 };
  if (!(event.key in ways)) return;
  event.preventDefault();
  event.stopPropagation();
  const value = Number(slider.value) + (ways[event.key] * (side.high - side.low)) / 20;
  slider.value = Math.min(side.high, Math.max(side.low, value));
  tell();
}

function showViews(views) {
  $("views").hidden = views.length === 0;
  $("views").replaceChildren(
    ...views.map(([title, text]) => {
      const box = document.createElement("div");
      const head = document.createElement("b");
      head.textContent = title;
      box.append(head, text);
      return box;
    }),
  );
}

function showTable(rows) {
  $("table").hidden = rows.length === 0;
  const table = document.createElement("table");
  for (const [name, value] of rows) {
    const row = table.insertRow();
    row.insertCell().textContent = name;
    row.insertCell().textContent = value;
  }
  $("table").replaceChildren(table);
}

// The last moves as a short animation, which ends on the picture of now.
function showFilm(found) {
  clearInterval(film);
  $("figure").hidden = !found.picture;
  if (!found.picture) return;
  $("picture").alt = found.cells && found.cells.length
    ? `A board of ${found.cells.length} rows: ${found.cells.join(", ")}. A is the agent, G the goal, # a wall.`
    : "What the agent sees now.";
  $("replay").hidden = found.frames.length < 2;
  for (const address of found.frames) new Image().src = address;
  play();
}

function play() {
  clearInterval(film);
  const frames = question.frames;
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  let place = still ? frames.length - 1 : 0;
  $("picture").src = frames[place];
  film = setInterval(() => {
    place += 1;
    if (place >= frames.length) return clearInterval(film);
    $("picture").src = frames[place];
  }, FRAME);
}

function showHint() {
  const agent = question && question.agent;
  const shown = agent && $("agent").checked;
  $("agent").parentElement.hidden = !agent;
  if (!shown) $("hint").textContent = "";
  else if (question.continuous) $("hint").textContent = ` · the agent would do ${agent.action.map((n) => n.toFixed(2)).join(", ")}`;
  else $("hint").textContent = ` · the agent would choose ${agent.name}, ${Math.round(100 * agent.chance)} % sure`;
}

function tick() {
  if (!question) return;
  const seconds = Math.max(0, Math.round(Date.now() / 1000 - question.asked_at));
  const text = seconds < 60 ? `${seconds} s` : seconds < 3600 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
  $("since").textContent = `asked ${text} ago`;
}

async function answer(action) {
  if (!question || busy) return;
  const chosen = [...document.getElementsByName("distance")].find((radio) => radio.checked);
  if (question.ask_distance && !chosen) {
    $("distance").classList.add("missing");
    return banner("Say first whether the goal is closer, as far, farther or reached.");
  }
  const sent = { question: question.id, action, key: key() };
  if (chosen && question.ask_distance) sent.distance = chosen.value;
  if ($("note").value.trim()) sent.note = $("note").value.trim();
  lastAnswer = sent;
  await leave(() => outbox.add("/api/answers", sent));
}

async function pass(why) {
  if (!question || busy) return;
  const sent = { question: question.id, why };
  if ($("note").value.trim()) sent.note = $("note").value.trim();
  await leave(() => outbox.add("/api/skip", sent));
}

async function leave(send) {
  busy = true;
  clearInterval(film);
  $("note").value = "";
  $("note").blur();
  question = null;
  try {
    await send();
  } finally {
    busy = false;
  }
  if (outbox.length) return idle("Your answer is kept", "It will be sent as soon as the server is back.");
  return load();
}

async function undo() {
  if (busy || given === 0) return;
  busy = true;
  try {
    const response = await post("/api/undo", {});
    const said = await response.json();
    if (response.ok) show(said);
    else banner(said.error);
  } catch {
    banner("No connection: try again in a moment.");
  } finally {
    busy = false;
  }
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target === $("note")) {
    if (event.key === "Escape") $("note").blur();
    return;
  }
  const own = !question || question.continuous ? null : question.actions.find((action) => action.keys.includes(event.key));
  const words = { c: "closer", e: "same", f: "farther", d: "done" };
  const others = {
    s: () => pass("skip"),
    k: () => pass("unknown"),
    u: undo,
    n: () => $("note").focus(),
    " ": () => question && question.picture && play(),
  };
  const onButton = event.target instanceof HTMLButtonElement && (event.key === "Enter" || event.key === " ");
  if (onButton) return;
  if (own) answer(own.action);
  else if (question && question.ask_distance && event.key in words) choose(words[event.key]);
  else if (event.key in others) others[event.key]();
  else return;
  event.preventDefault();
});

function choose(word) {
  for (const radio of document.getElementsByName("distance")) radio.checked = radio.value === word;
  $("distance").classList.remove("missing");
  banner("");
}

$("sliders").addEventListener("submit", (event) => {
  event.preventDefault();
  answer([...$("sliders").querySelectorAll("input")].map((slider) => Number(slider.value)));
});
$("skip").addEventListener("click", () => pass("skip"));
$("unknown").addEventListener("click", () => pass("unknown"));
$("undo").addEventListener("click", undo);
$("undo-idle").addEventListener("click", undo);
$("replay").addEventListener("click", play);
$("agent").checked = localStorage.getItem("apil-agent") !== "no";
$("agent").addEventListener("change", () => {
  localStorage.setItem("apil-agent", $("agent").checked ? "yes" : "no");
  showHint();
});
setInterval(tick, 1000);

async function begin() {
  try {
    const response = await get("/api/me");
    const me = await response.json();
    if (!response.ok) return invalid(me.error);
    given = me.answers;
    $("given").textContent = given;
    $("waiting").textContent = me.waiting;
    $("title").textContent = `${me.name} teaches ${me.task || "an agent"}`;
  } catch {
    idle("No connection", "Trying again …");
    return setTimeout(begin, 1000);
  }
  if (outbox.length) await outbox.flush();
  listen("/api/events", (news) => {
    $("waiting").textContent = news.waiting;
    if (!outbox.length) banner(news.trainer ? "" : "The training is not running. Answers are kept until it is back.");
    if (!question && !outbox.length) {
      if (news.paused) idle("Paused", "Whoever runs this has paused it. The next question appears by itself.");
      else load();
    }
  }, () => banner("No connection. Answers are kept here until the server is back."));
  return load();
}

begin();
