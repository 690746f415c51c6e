"use strict";
// The page draws what the server tells and sends back which action was chosen. It knows no rules.

const RANKS = { A: "ace", T: "ten", J: "jack", Q: "queen", K: "king" };
const NUMBERS = ["two", "three", "four", "five", "six", "seven", "eight", "nine"];
const SUITS = { S: "spades", H: "hearts", D: "diamonds", C: "clubs" };
const ASPECT = 1.4, GAP = 0.09, THIN = 0.035, NARROWEST = 27, WIDEST = 92, LISTED = 200, RECENT = 8;
const SVG = "http://www.w3.org/2000/svg";

let games = null; // what /api/games told
let present = null; // the view on show: { state, picked, hint, values, ... }
let busy = false;

// ---------------------------------------------------------------- small helpers

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

class Refused extends Error {
  constructor(status, told) {
    super(told.error || `the server answered ${status}`);
    this.status = status;
    this.told = told;
  }
}

async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: typeof body === "string" ? body : JSON.stringify(body),
  };
  let reply;
  try {
    reply = await fetch(path, { ...options, credentials: "omit", cache: "no-store" });
  } catch {
    throw new Refused(0, { error: "the server does not answer: is it still running?" });
  }
  const told = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new Refused(reply.status, told);
  return told;
}

let fading = 0;
function say(text, bad = false) {
  const place = document.getElementById("message");
  place.textContent = text;
  place.className = text ? (bad ? "shown bad" : "shown") : "";
  clearTimeout(fading);
  fading = setTimeout(() => { place.className = ""; }, 4500);
}

function cardName(card) {
  if (card === "??") return "face-down card";
  const rank = RANKS[card[0]] || NUMBERS[Number(card[0]) - 2];
  return `${rank} of ${SUITS[card[1]]}`;
}

function readValue(text) {
  try { return JSON.parse(text); } catch { return text; }
}

function writeValue(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function store(kind, name, value) {
  try {
    if (value === undefined) return JSON.parse(window[kind].getItem(name));
    window[kind].setItem(name, JSON.stringify(value));
  } catch { /* storage is full or forbidden: games then live as long as the page */ }
  return null;
}

// ---------------------------------------------------------------- addresses

// #/GAME/deal/17?placement=fixed, #/GAME/match/17?deals=3&against=greedy, #/match, #/replay, #/
function readAddress() {
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  const options = {};
  let deals = null, against = null;
  for (const [name, value] of new URLSearchParams(query || "")) {
    if (parts[1] === "match" && name === "deals") deals = Number(value);
    else if (parts[1] === "match" && name === "against") against = value.split(" ").filter(Boolean);
    else options[name] = readValue(value);
  }
  if (parts.length === 3 && (parts[1] === "deal" || parts[1] === "match")) {
    return { page: parts[1], game: parts[0], deal: parts[2], options, deals, against };
  }
  return { page: parts[0] === "replay" || parts[0] === "match" ? parts[0] + "-form" : "home" };
}

function writeAddress(view, game) {
  const query = new URLSearchParams();
  const fields = Object.fromEntries(game.fields.map((field) => [field.name, field.default]));
  for (const [name, value] of Object.entries(view.options)) {
    if (JSON.stringify(value) !== JSON.stringify(fields[name])) query.set(name, writeValue(value));
  }
  if (view.kind === "match") {
    query.set("deals", view.deals);
    query.set("against", view.players.slice(1).map((player) => player.name).join(" "));
  }
  const kind = view.kind === "match" ? "match" : "deal";
  const deal = view.kind === "match" ? view.first : view.deal;
  const text = query.toString();
  return `#/${view.game}/${kind}/${deal}${text ? "?" + text : ""}`;
}

function gameOf(id) {
  return games.find((game) => game.id === id);
}

// ---------------------------------------------------------------- pages

async function show() {
  const address = readAddress();
  const main = document.getElementById("main");
  for (const link of document.querySelectorAll("nav [data-page]")) {
    const here = { home: ["home", "deal"], match: ["match", "match-form"], replay: ["replay-form"] }[link.dataset.page];
    if (here.includes(address.page)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  try {
    if (!games) games = (await ask("/api/games")).games;
    if (address.page === "home") showHome(main);
    else if (address.page === "match-form") showMatchForm(main);
    else if (address.page === "replay-form") showReplay(main);
    else await openSession(main, address);
  } catch (error) {
    present = null;
    main.replaceChildren(make("p", { class: "fault", role: "alert" }, error.message), make("p", {}, make("a", { href: "#/" }, "To the games")));
  }
  document.body.dataset.ready = address.page;
}

async function openSession(main, address) {
  const key = "game:" + location.hash;
  const known = store("sessionStorage", key);
  if (present && present.state.id === known && present.key === key) return;
  let state = null;
  if (known) {
    try {
      state = await ask("/api/sessions/" + encodeURIComponent(known));
    } catch (error) {
      if (error.status !== 404) throw error;
    }
  }
  if (!state) {
    main.replaceChildren(make("p", { class: "wait" }, "Shuffling…"));
    const wanted = { game: address.game, options: address.options, deal: address.deal };
    state = address.page === "match"
      ? await ask("/api/matches", { ...wanted, deals: address.deals || 3, opponents: address.against || ["greedy"] })
      : await ask("/api/sessions", wanted);
  }
  const proper = writeAddress(state, gameOf(state.game));
  if (proper !== location.hash) history.replaceState(null, "", proper);
  remember(state, proper);
  enter(main, state);
}

function remember(state, address) {
  store("sessionStorage", "game:" + address, state.id);
  const recent = (store("localStorage", "recent") || []).filter((one) => one.id !== state.id);
  const title = `${state.title}, ${state.kind === "match" ? "match from deal " + state.first : "deal " + state.deal}`;
  store("localStorage", "recent", [{ id: state.id, address, title }, ...recent].slice(0, RECENT));
}

function showHome(main) {
  present = null;
  document.title = "Patience";
  const recent = store("localStorage", "recent") || [];
  const resume = recent.length ? make("details", { class: "panel" }, make("summary", {}, "Games you played lately"), make("ul", {}, recent.map((one) =>
    make("li", {}, make("a", { href: one.address, onclick: () => store("sessionStorage", "game:" + one.address, one.id) }, one.title))))) : null;
  main.replaceChildren(...[
    make("h1", {}, "Choose a game"),
    resume,
    make("div", { class: "games" }, games.map((game) => make("section", { class: "panel", "aria-label": game.title },
      make("h2", {}, game.title), make("p", { class: "soft" }, game.about), gameForm(game)))),
  ].filter(Boolean));
}

function gameForm(game) {
  const form = make("form", { class: "setup" }, game.fields.map(fieldOf), dealField(), make("button", { class: "main" }, `Play ${game.title}`));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    begin(form, "/api/sessions", { game: game.id, options: readFields(form, game) });
  });
  return form;
}

function dealField() {
  return make("label", {}, make("span", {}, "deal"), make("input", { type: "text", name: "deal", inputmode: "numeric", pattern: "[0-9]*", maxlength: 20, placeholder: "a new one" }));
}

function fieldOf(field) {
  const name = "option:" + field.name;
  let input;
  if (field.kind === "choice" && !field.free) {
    input = make("select", { name }, field.choices.map((choice) =>
      make("option", { value: JSON.stringify(choice), selected: JSON.stringify(choice) === JSON.stringify(field.default) }, optionText(choice))));
  } else {
    const list = field.kind === "choice" ? field.choices.map(writeValue) : [];
    const hint = field.kind === "number" ? `${field.low} to ${field.high.toLocaleString("en")}${field.also.includes(null) ? ", or none" : ""}` : list.join(", ");
    const id = "list-" + Math.random().toString(36).slice(2);
    input = make("input", { type: "text", name, value: field.default === null ? "" : writeValue(field.default), placeholder: field.default === null ? "none" : "", list: list.length ? id : null, title: hint, spellcheck: "false" });
    return make("div", {}, make("label", {}, make("span", {}, field.name.replace(/_/g, " ")), input), list.length ? make("datalist", { id }, list.map((value) => make("option", { value }))) : null,
      make("p", { class: "help" }, `${field.help} (${hint})`));
  }
  return make("div", {}, make("label", {}, make("span", {}, field.name.replace(/_/g, " ")), input), make("p", { class: "help" }, field.help));
}

function optionText(value) {
  return { true: "yes", false: "no", null: "none" }[String(value)] || String(value);
}

function readFields(form, game) {
  const options = {};
  for (const field of game.fields) {
    const input = form.elements["option:" + field.name];
    if (!input) continue;
    const text = input.value.trim();
    options[field.name] = text === "" || text === "none" ? null : readValue(text);
  }
  return options;
}

async function begin(form, path, wanted) {
  const button = form.querySelector("button.main");
  const deal = form.elements.deal.value.trim();
  button.disabled = true;
  try {
    const state = await ask(path, deal ? { ...wanted, deal } : wanted);
    const address = writeAddress(state, gameOf(state.game));
    remember(state, address);
    enter(document.getElementById("main"), state, "game:" + address);
    if (location.hash === address) show();
    else location.hash = address;
  } catch (error) {
    say(error.message, true);
  } finally {
    button.disabled = false;
  }
}

function showMatchForm(main) {
  present = null;
  document.title = "Match";
  const scoring = games.filter((game) => game.scores);
  main.replaceChildren(make("h1", {}, "A match against the agents"), make("p", { class: "soft" },
    "The same cards are called to all; each player places them in a tableau of their own. The agents see what you see: none knows the cards to come."),
  ...scoring.map(matchForm));
}

function matchForm(game) {
  const fields = game.fields.filter((field) => field.name !== "target");
  const opponents = make("fieldset", {}, make("legend", {}, "opponents"), make("span", { class: "soft" }, "Looking who is here…"));
  const form = make("form", { class: "setup panel" }, make("h2", {}, game.title), fields.map(fieldOf),
    make("label", {}, make("span", {}, "deals"), make("input", { type: "number", name: "deals", min: 1, max: 100, value: 3 })),
    dealField(), opponents, make("button", { class: "main" }, "Begin the match"));
  if (form.elements["option:placement"]) form.elements["option:placement"].value = '"fixed"';
  const chosen = () => [...opponents.querySelectorAll("input:checked")].map((box) => box.value);
  let latest = 0;
  const refresh = async () => {
    const mine = ++latest;
    try {
      const told = await ask("/api/opponents", { game: game.id, options: readFields(form, { fields }) });
      if (mine !== latest) return;
      const before = chosen();
      const able = told.opponents.filter((one) => !one.fault);
      const picks = before.length ? before : able.filter((one) => one.name === game.adviser).map((one) => one.name);
      opponents.replaceChildren(make("legend", {}, "opponents"), ...told.opponents.map((one) => make("label", { title: one.fault },
        make("input", { type: "checkbox", name: "opponent", value: one.name, checked: !one.fault && picks.includes(one.name), disabled: !!one.fault }), make("span", {}, one.name))));
      opponents.dataset.ready = "yes";
    } catch (error) {
      opponents.replaceChildren(make("legend", {}, "opponents"), make("span", { class: "fault" }, error.message));
    }
  };
  form.addEventListener("change", (event) => { if (event.target.name.startsWith("option:")) refresh(); });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!chosen().length) return say("choose at least one opponent", true);
    return begin(form, "/api/matches", { game: game.id, options: readFields(form, { fields }), deals: Number(form.elements.deals.value), opponents: chosen() });
  });
  refresh();
  return form;
}

// ---------------------------------------------------------------- a game in progress

function enter(main, state, key) {
  const game = gameOf(state.game);
  const view = {
    state, game, key: key || "game:" + location.hash, picked: [], hint: null, values: null, focus: null, texts: {},
    policy: store("localStorage", "policy:" + game.id) || game.adviser,
  };
  present = view;
  const button = (id, text, work, title) => make("button", { type: "button", id, title, onclick: work }, text);
  const policies = make("select", { id: "policy", "aria-label": "who gives hints", onchange: (event) => { view.policy = event.target.value; store("localStorage", "policy:" + game.id, view.policy); } },
    game.policies.map((name) => make("option", { value: name, selected: name === view.policy }, name)));
  const match = state.kind === "match";
  view.parts = {
    title: make("h1", {}), facts: make("p", { class: "facts", id: "facts" }), end: make("div", { id: "end", role: "status" }),
    felt: make("div", { class: "felt" }), moves: make("div", { id: "moves" }), rivals: make("div", { class: "rivals" }), history: make("div", {}),
    undo: button("undo", "Undo", undo, "take the last move back (U)"),
  };
  const hints = [button("hint", "Hint", hint, "what would this policy play? (H)"), state.scores ? button("values", "Values", () => values(0), "expected final score of each cell (V)") : null, policies];
  main.replaceChildren(
    view.parts.title,
    make("div", { class: "bar" }, match ? null : view.parts.undo, hints,
      match ? null : button("new", "New deal", newDeal, "another deal of this game (N)"),
      match ? null : button("restart", "Again", again, "the same deal from its start"),
      button("save", "Save as file", save, "the game so far, to be replayed")),
    view.parts.facts, view.parts.end,
    make("div", { class: "play" },
      make("div", {}, match ? make("div", { class: "side" }, view.parts.felt, view.parts.rivals) : view.parts.felt, make("p", { class: "keys" }, make("kbd", {}, "arrows"), " move, ", make("kbd", {}, "Enter"), " choose, ", make("kbd", {}, "Esc"), " let go, ", make("kbd", {}, "1–9"), " play from the list, ", make("kbd", {}, "H"), " hint", match ? "" : ", ", match ? null : make("kbd", {}, "U"), match ? null : " undo")),
      make("aside", { "aria-label": "Legal moves" }, view.parts.moves, view.parts.history)));
  render();
}

function update(state) {
  present.state = state;
  present.picked = [];
  present.hint = null;
  present.values = null;
  present.texts = {};
  render();
}

function render() {
  const view = present, state = view.state;
  document.title = `${state.title}, deal ${state.deal}`;
  view.parts.title.textContent = state.title;
  const facts = [["deal", state.deal], ...Object.entries(state.counters), ["moves", state.step], ...state.facts.map((text) => [text, ""])];
  if (state.kind === "match") facts.splice(1, 0, ["of the match", `${state.round + 1} / ${state.deals}`]);
  else if (!state.scores) facts.push(["done", Math.round(100 * state.done) + "%"]);
  view.parts.facts.replaceChildren(...facts.map(([name, value]) => make("span", {}, `${name} `, make("b", {}, String(value)))));
  view.parts.undo.disabled = !state.step;
  view.parts.end.replaceChildren(...(state.message ? [make("p", { class: "end" }, state.message + " ", ending(state))] : []));
  const lit = litPlaces();
  drawBoard(view.parts.felt, state.board, state.table, { lit, picked: picked(), hinted: view.hint ? [...view.hint.from, ...view.hint.to] : [], values: view.values && view.values.seat === 0 ? view.values : null, click: choose, focus: view.focus });
  drawMoves();
  if (state.kind === "match") drawRivals();
  document.body.dataset.step = state.step;
}

function ending(state) {
  if (state.kind === "match" && !state.matchOver) return make("button", { type: "button", id: "next", class: "main", onclick: nextDeal }, "Next deal");
  if (state.kind === "match") return make("a", { href: "#/match" }, "Another match");
  return make("button", { type: "button", class: "main", onclick: newDeal }, "New deal");
}

// Where every move starts from the same pile, that pile is chosen already.
function picked() {
  const { state, picked: own } = present;
  if (own.length) return own;
  const first = state.moves.length ? state.moves[0][2] : [];
  const same = first.length === 1 && state.moves.every((move) => move[2].length === 1 && move[2][0] === first[0] && move[3].length === 1);
  return same ? first : [];
}

function places(move) {
  return [...move[2], ...move[3]];
}

function candidates(chosen) {
  return present.state.moves.filter((move) => (!chosen.length || move[2].includes(chosen[0])) && chosen.every((name) => places(move).includes(name)));
}

function litPlaces() {
  const chosen = picked();
  const found = new Set();
  for (const move of candidates(chosen)) {
    for (const name of chosen.length ? places(move) : move[2]) if (!chosen.includes(name)) found.add(name);
  }
  return found;
}

function choose(name) {
  const view = present;
  view.focus = name;
  const chosen = picked();
  if (chosen.includes(name)) {
    const only = candidates(chosen);
    if (only.length === 1) return play(only[0][0]);
    view.picked = [];
    return render();
  }
  let next = [...chosen, name];
  let found = candidates(next);
  if (!found.length) {
    next = [name];
    found = candidates(next);
  }
  if (!found.length) {
    if (chosen.length || view.state.moves.length) say("nothing can be played there");
    view.picked = [];
    return render();
  }
  if (found.length === 1 && (next.length > 1 || places(found[0]).length === 1 || hiddenTop(name))) return play(found[0][0]);
  view.picked = next;
  return render();
}

function hiddenTop(name) {
  const cards = present.state.table[name] || [];
  return cards.length > 0 && cards[cards.length - 1] === "??";
}

async function work(path, body, then) {
  if (busy || !present) return;
  busy = true;
  const view = present;
  const whole = { step: view.state.step, ...(view.state.kind === "match" ? { round: view.state.round } : {}), ...body };
  try {
    const told = await ask(`/api/sessions/${encodeURIComponent(view.state.id)}/${path}`, whole);
    if (present === view) then(told);
  } catch (error) {
    if (error.status === 409 && error.told.state && present === view) update(error.told.state);
    say(error.message, true);
  } finally {
    busy = false;
  }
}

const play = (action) => work("moves", { action }, (state) => { update(state); if (state.message) say(state.message); });
const undo = () => work("undo", {}, update);
const nextDeal = () => work("next", {}, update);

function hint() {
  return work("hint", { policy: present.policy }, (told) => {
    present.hint = told;
    say(`${present.policy}: ${told.text}`);
    render();
  });
}

function values(seat, policy) {
  return work("values", { policy: policy || present.policy, seat }, (told) => {
    present.values = { ...told, seat };
    say(`expected final score, ${told.method}`);
    render();
  });
}

function newDeal() {
  const { game, options } = present.state;
  return beginAgain({ game, options });
}

function again() {
  const { game, options, deal } = present.state;
  return beginAgain({ game, options, deal });
}

async function beginAgain(wanted) {
  try {
    const state = await ask("/api/sessions", wanted);
    const address = writeAddress(state, gameOf(state.game));
    remember(state, address);
    history.pushState(null, "", address);
    enter(document.getElementById("main"), state);
  } catch (error) {
    say(error.message, true);
  }
}

async function save() {
  try {
    const { id, game, deal } = present.state;
    const reply = await fetch(`/api/sessions/${encodeURIComponent(id)}/record`, { cache: "no-store" });
    const text = await reply.text(); // not parsed: deal numbers may exceed what JavaScript can hold
    const link = make("a", { href: URL.createObjectURL(new Blob([text + "\n"], { type: "application/json" })), download: `${game}-${deal}.json` });
    link.click();
    URL.revokeObjectURL(link.href);
  } catch (error) {
    say(error.message, true);
  }
}

// ---------------------------------------------------------------- drawing

function unitOf(board, felt, most = WIDEST, least = NARROWEST) {
  const room = Math.max(felt.clientWidth, 200) - 2;
  const across = board.width * (1 + GAP) - GAP + 0.5;
  const down = board.height * ASPECT * (1 + GAP / ASPECT) + 0.5;
  const top = felt.getBoundingClientRect().top + window.scrollY;
  const height = Math.max(window.innerHeight - top - 16, 400);
  return Math.max(least, Math.min(most, room / across, height / down));
}

function drawBoard(felt, board, table, looks) {
  const w = looks.unit || unitOf(board, felt, looks.most, looks.least);
  const h = ASPECT * w, gap = GAP * w, margin = 0.25 * w;
  const px = (x) => margin + x * (w + gap);
  const py = (y) => margin + y * (h + gap);
  const root = make("div", { class: "board", role: "group", "aria-label": "Table" });
  root.style.width = `${px(board.width) - gap + margin}px`;
  root.style.height = `${py(board.height) - gap + margin}px`;
  const labels = [];
  let tabbable = looks.focus && board.places.some((place) => place.name === looks.focus) ? looks.focus : null;
  if (!tabbable && looks.click) tabbable = (board.places.find((place) => looks.lit.has(place.name)) || board.places[0] || {}).name;
  for (const place of board.places) {
    const cards = table[place.name] || [];
    const squeeze = cards.length > 1 ? Math.min(1, place.steps / (cards.length - 1)) : 1;
    const dx = place.dx * squeeze * (w + gap), dy = place.dy * squeeze * (h + gap);
    const last = Math.max(cards.length - 1, 0);
    const left = Math.min(0, last * dx), top = Math.min(0, last * dy);
    const isLit = looks.lit && looks.lit.has(place.name), isPicked = looks.picked && looks.picked.includes(place.name);
    const pile = make(looks.click ? "button" : "div", {
      class: ["pile", cards.length ? "" : "empty", isLit ? "lit" : "", isPicked ? "picked" : "", looks.hinted && looks.hinted.includes(place.name) ? "hinted" : "", looks.fresh === place.name ? "fresh" : ""].filter(Boolean).join(" "),
      "data-name": place.name,
    });
    if (looks.click) {
      pile.type = "button";
      pile.tabIndex = place.name === tabbable ? 0 : -1;
      pile.setAttribute("aria-label", pileLabel(place, cards, isLit, isPicked));
      pile.setAttribute("aria-pressed", isPicked ? "true" : "false");
      if (!isLit && !isPicked) pile.setAttribute("aria-disabled", "true");
      pile.addEventListener("click", () => looks.click(place.name));
    }
    pile.style.left = `${px(place.x) + left}px`;
    pile.style.top = `${py(place.y) + top}px`;
    pile.style.width = `${w + Math.abs(last * dx)}px`;
    pile.style.height = `${h + Math.abs(last * dy)}px`;
    // From the top down, so that of cards in the same place the top one is shown.
    const shown = [last];
    for (let i = last - 1; i >= 0; i--) {
      if ((shown[shown.length - 1] - i) * Math.max(Math.abs(place.dx), Math.abs(place.dy)) * squeeze >= THIN) shown.push(i);
    }
    for (const i of shown.reverse()) pile.append(drawCard(cards[i] || "--", i * dx - left, i * dy - top, w, h));
    const edge = make("span", { class: "edge" });
    edge.style.left = `${last * dx - left}px`;
    edge.style.top = `${last * dy - top}px`;
    edge.style.width = `${w}px`;
    edge.style.height = `${h}px`;
    pile.append(edge);
    root.append(pile);
    if (place.label) {
      const y = place.labelY === null ? py(place.y + 0.5) - gap / 2 : py(place.labelY + 0.11) - gap / 2;
      labels.push(text("label", place.label, px(place.x) + w / 2, y, Math.max(0.21 * w, 9.5)));
    }
    if (looks.values && place.name in looks.values.values) {
      const value = looks.values.values[place.name];
      const best = Object.values(looks.values.values).every((other) => other <= value);
      const error = looks.values.errors[place.name];
      const note = text(best ? "value best" : "value", value.toFixed(Math.abs(value) < 10 ? 1 : 0), px(place.x) + w / 2, py(place.y) + h / 2, Math.max(0.27 * w, 9));
      if (error !== undefined) note.title = `± ${error}`;
      labels.push(note);
    }
  }
  root.append(...labels);
  const had = felt.contains(document.activeElement) && document.activeElement.dataset.name;
  const [x, y] = [felt.scrollLeft, felt.scrollTop];
  felt.replaceChildren(root);
  felt.scrollTo(x, y);
  if (had) {
    const same = [...root.children].find((child) => child.dataset.name === had);
    if (same) focusPile(root, same);
  }
}

function text(kind, content, x, y, size) {
  const element = make("span", { class: kind }, content);
  element.style.left = `${x}px`;
  element.style.top = `${y}px`;
  element.style.fontSize = `${size}px`;
  return element;
}

function drawCard(card, x, y, w, h) {
  const name = { "??": "back", "--": "none" }[card] || card;
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "card");
  svg.setAttribute("width", w);
  svg.setAttribute("height", h);
  svg.setAttribute("viewBox", "0 0 100 140");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `/cards.svg#card-${name}`);
  use.setAttribute("width", 100);
  use.setAttribute("height", 140);
  svg.append(use);
  svg.style.left = `${x}px`;
  svg.style.top = `${y}px`;
  return svg;
}

function pileLabel(place, cards, lit, pickedNow) {
  const top = cards.length ? cardName(cards[cards.length - 1]) : "empty";
  const count = cards.length > 1 ? `, ${cards.length} cards` : "";
  const state = pickedNow ? ", chosen" : lit ? (picked().length ? ", can go here" : ", can be played") : "";
  return `${place.name}: ${top}${count}${state}`;
}

function drawMoves() {
  const view = present, { state, hint: told } = view;
  const chosen = picked();
  const found = candidates(chosen);
  const shown = found.slice(0, LISTED);
  const missing = shown.filter((move) => !move[1] && !view.texts[move[0]]);
  const heading = state.over ? "No move is left" : `${found.length.toLocaleString("en")} legal move${found.length === 1 ? "" : "s"}${view.picked.length ? ` from ${view.picked.join(", ")}` : ""}`;
  const list = [];
  if (missing.length && !view.picked.length) {
    list.push(make("p", { class: "soft" }, "Choose a card to see what it can do."));
  } else if (missing.length) {
    list.push(make("p", { class: "soft" }, "…"));
    work("describe", { actions: missing.map((move) => move[0]) }, (words) => {
      missing.forEach((move, i) => { view.texts[move[0]] = words.texts[i]; });
      drawMoves();
    });
  } else {
    list.push(make("ol", {}, shown.map((move, i) => make("li", {}, make("button", { type: "button", "data-action": move[0], class: told && told.action === move[0] ? "hinted" : "", onclick: () => play(move[0]) },
      make("kbd", {}, i < 9 ? String(i + 1) : ""), make("span", {}, move[1] || view.texts[move[0]]))))));
    if (found.length > shown.length) list.push(make("p", { class: "soft" }, `and ${found.length - shown.length} more: choose a card`));
  }
  const last = state.last ? make("p", { class: "soft" }, `Last: ${state.last}`) : null;
  view.parts.moves.replaceChildren(make("div", { class: "panel moves" }, make("h2", {}, heading), ...list, ...(last ? [last] : [])));
}

function drawRivals() {
  const view = present, state = view.state;
  const cells = state.board.places;
  view.parts.rivals.replaceChildren(...state.players.slice(1).map((player, i) => {
    const felt = make("div", { class: "felt" });
    const box = make("section", { class: "panel", "aria-label": player.name },
      make("h2", {}, make("span", {}, player.name), make("span", {}, `${player.score} points`)),
      state.over ? null : make("button", { type: "button", onclick: () => values(i + 1, player.name) }, "Its values"), felt);
    requestAnimationFrame(() => {
      const grid = { ...state.board, places: cells.filter((place) => /^r\d+c\d+$/.test(place.name)) };
      grid.width = 1 + Math.max(...grid.places.map((place) => place.x));
      grid.height = 1 + Math.max(...grid.places.map((place) => place.y));
      const fresh = player.last === null ? null : grid.places[player.last] && grid.places[player.last].name;
      drawBoard(felt, grid, player.table, { most: 46, least: 15, fresh, values: view.values && view.values.seat === i + 1 ? view.values : null });
    });
    return box;
  }));
  const rows = [...state.history.map((deal) => [deal.deal, ...deal.scores]), [state.deal, ...state.players.map((player) => player.score)]];
  view.parts.history.replaceChildren(make("div", { class: "panel" }, make("h2", {}, "Totals"), make("table", {},
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "deal"), state.players.map((player) => make("th", { scope: "col" }, player.name)))),
    make("tbody", {}, rows.map((row) => make("tr", {}, row.map((cell) => make("td", {}, String(cell)))))),
    make("tfoot", {}, make("tr", { id: "totals" }, make("th", { scope: "row" }, "total"), state.players.map((player) => make("td", {}, make("b", {}, String(player.total)))))))));
}

// ---------------------------------------------------------------- keyboard

function focusPile(root, pile) {
  for (const other of root.querySelectorAll("button.pile")) other.tabIndex = -1;
  pile.tabIndex = 0;
  pile.focus({ preventScroll: false });
  if (present) present.focus = pile.dataset.name;
}

function neighbour(root, from, key) {
  const here = from.getBoundingClientRect();
  const [x, y] = [here.left + here.width / 2, here.top + Math.min(here.height, here.width) / 2];
  const [ax, ay] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
  let best = null, least = Infinity;
  for (const pile of root.querySelectorAll("button.pile")) {
    const there = pile.getBoundingClientRect();
    const dx = there.left + there.width / 2 - x, dy = there.top + Math.min(there.height, there.width) / 2 - y;
    const along = dx * ax + dy * ay, aside = Math.abs(dx * ay) + Math.abs(dy * ax);
    if (along > 2 && along + 2.5 * aside < least && aside < 4 * along) {
      least = along + 2.5 * aside;
      best = pile;
    }
  }
  return best;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || !present || !present.parts) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (event.key.startsWith("Arrow")) {
    const root = present.parts.felt.querySelector(".board");
    const pile = document.activeElement.closest(".pile");
    const next = pile ? neighbour(root, pile, event.key) : root.querySelector("button.pile[tabindex='0']");
    if (pile || document.activeElement === document.body || document.activeElement.id === "main") {
      event.preventDefault();
      if (next) focusPile(root, next);
    }
  } else if (event.key === "Escape") {
    present.picked = [];
    render();
  } else if (/^[1-9]$/.test(event.key)) {
    const button = present.parts.moves.querySelectorAll("ol button")[Number(event.key) - 1];
    if (button) button.click();
  } else if (event.key === "u" && present.state.kind !== "match") undo();
  else if (event.key === "h") hint();
  else if (event.key === "v" && present.state.scores) values(0);
  else if (event.key === "n" && present.state.kind !== "match") newDeal();
});

// ---------------------------------------------------------------- replay

function showReplay(main) {
  present = null;
  document.title = "Replay";
  const area = make("textarea", { id: "record", rows: 5, spellcheck: "false", "aria-label": "recorded game", placeholder: '{"game": "Calculation-v0", "options": {}, "deal": 17, "actions": [...]}' });
  const file = make("input", { type: "file", accept: ".json,application/json", "aria-label": "file of a recorded game" });
  const stage = make("div", {});
  const load = async () => {
    try {
      JSON.parse(area.value);
    } catch (error) {
      return say(`this is no JSON: ${error.message}`, true);
    }
    return replay(stage, area.value);
  };
  file.addEventListener("change", async () => {
    if (file.files.length) {
      area.value = await file.files[0].text();
      load();
    }
  });
  main.replaceChildren(make("h1", {}, "Replay a recorded game"), make("div", { class: "panel" },
    make("p", { class: "soft" }, "Paste a game that was saved here or by patience play, or choose its file."), area,
    make("div", { class: "bar" }, file, make("button", { type: "button", class: "main", id: "load", onclick: load }, "Show it"))), stage);
}

async function replay(stage, record) {
  let told;
  // The text goes as it is: a deal number may exceed what JavaScript can hold.
  const at = (step) => ask("/api/replays", `{"record":${record},"step":${step}}`);
  try {
    told = await at(0);
  } catch (error) {
    return say(error.message, true);
  }
  const felt = make("div", { class: "felt" });
  const words = make("p", { id: "words", "aria-live": "polite" });
  const facts = make("p", { class: "facts" });
  const slider = make("input", { type: "range", id: "slider", min: 0, max: told.steps, value: 0, "aria-label": "step" });
  let wanted = 0, running = false;
  const draw = () => {
    drawBoard(felt, told.board, told.table, {});
    const counters = [["deal", told.deal], ["step", `${told.step} / ${told.steps}`], ...Object.entries(told.counters), ...told.facts.map((fact) => [fact, ""])];
    facts.replaceChildren(...counters.map(([name, value]) => make("span", {}, `${name} `, make("b", {}, String(value)))));
    words.textContent = told.message || (told.next ? `Next: ${told.next}` : told.last);
    document.body.dataset.step = told.step;
  };
  const go = async (step) => {
    wanted = Math.max(0, Math.min(told.steps, step));
    slider.value = wanted;
    if (running) return;
    running = true;
    try {
      while (told.step !== wanted) told = await at(wanted);
      draw();
    } catch (error) {
      say(error.message, true);
    } finally {
      running = false;
    }
  };
  slider.addEventListener("input", () => go(Number(slider.value)));
  const button = (label, name, by) => make("button", { type: "button", "aria-label": name, title: name, onclick: () => go(by()) }, label);
  stage.replaceChildren(make("h1", {}, told.title), facts,
    make("div", { class: "bar" }, button("⏮", "to the start", () => 0), button("◀", "one back", () => wanted - 1), button("▶", "one on", () => wanted + 1), button("⏭", "to the end", () => told.steps)),
    slider, words, felt);
  return draw();
}

// ---------------------------------------------------------------- start

document.getElementById("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  store("localStorage", "theme", document.documentElement.dataset.theme);
});
const theme = store("localStorage", "theme");
if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
window.addEventListener("hashchange", () => {
  if (location.hash === "#main") return;
  show();
});
let resizing = 0;
window.addEventListener("resize", () => {
  cancelAnimationFrame(resizing);
  resizing = requestAnimationFrame(() => { if (present && present.parts) render(); });
});
show();
