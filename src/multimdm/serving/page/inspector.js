// What is known of one token, next to it: its guesses at the step that is shown, and its history.

import { element, face } from "./grid.js";

const MOST_ROWS = 10;
const narrow = matchMedia("(max-width: 620px)"); // as in the style sheet
const box = document.getElementById("inspector");

let inspected = null; // { panel, place, pinned }

/** Show the details of a token, or none if `place` is null; pinned ones stay. */
export function inspect(panel, place, pin) {
  if ((inspected?.pinned && !pin) || panel.shown < 0) return;
  if (place === null || (pin && inspected?.pinned && inspected.panel === panel && inspected.place === place)) return closeInspector();
  unmark();
  inspected = { panel, place, pinned: pin };
  if (pin) panel.tokens[place].classList.add("pinned");
  render();
}

function unmark() {
  inspected?.panel.tokens?.[inspected.place]?.classList.remove("pinned");
}

export function closeInspector() {
  unmark();
  inspected = null;
  box.hidden = true;
}

/** After a step or a scroll. */
export function refreshInspector() {
  if (inspected) render();
}

function render() {
  const { panel, place, pinned } = inspected;
  box.replaceChildren(...(pinned ? [closeButton()] : []), ...details(panel, place));
  box.classList.toggle("pinned", pinned);
  box.hidden = false;
  if (pinned) panel.tokens[place].classList.add("pinned");
  if (narrow.matches) return; // a sheet at the bottom
  const token = panel.tokens[place].getBoundingClientRect();
  const [above, below] = [token.top - 16, innerHeight - token.bottom - 16];
  const under = below >= Math.min(box.scrollHeight, 300) || below >= above;
  box.style.maxHeight = `${Math.max(120, under ? below : above)}px`;
  box.style.left = `${Math.min(Math.max(8, token.left), innerWidth - box.offsetWidth - 8)}px`;
  box.style.top = `${under ? token.bottom + 8 : Math.max(8, token.top - box.offsetHeight - 8)}px`;
  const now = box.querySelector(".now");
  if (now) box.scrollTop = now.offsetTop + now.offsetHeight + 8 - box.clientHeight;
}

function closeButton() {
  const button = element("button", { type: "button", class: "quiet close", "aria-label": "Close" }, "×");
  button.addEventListener("click", closeInspector);
  return button;
}

// ------------------------------------------------------------------- content

/** The content of the inspector for a position of a panel. */
function details(panel, place) {
  const [shown, given] = [panel.shown, panel.start.given[place]];
  const token = panel.frames[shown].tokens[place];
  const title = element("h3", {}, `Position ${place + 1}: ${token.mask === undefined ? token.text : "not decided yet"}`);
  if (given) return [title, element("p", { class: "soft" }, "Given by you; it stays.")];
  return [title, ...guesses(panel, place), element("h4", {}, "History"), history(panel, place)];
}

/** The most probable tokens: at the step shown, or at the one that settled the token. */
function guesses(panel, place) {
  const settled = panel.frames[panel.shown].tokens[place].candidates === undefined;
  const index = settled ? Math.min(panel.revealed(place) - 1, panel.shown) : panel.shown;
  const candidates = panel.frames[Math.max(0, index)].tokens[place].candidates ?? [];
  if (!candidates.length) return [];
  const taken = settled ? panel.frames[panel.shown].tokens[place].text : null;
  const rows = candidates.map(([text, share]) => {
    const row = element("div", { class: `candidate${text === taken ? " taken" : ""}` }, element("b", {}, text), element("span", {}, percent(share)));
    row.style.setProperty("--share", `${100 * share}%`);
    return row;
  });
  const time = panel.frames[Math.max(0, index)].t;
  return [element("h4", {}, settled ? `Guesses when it was drawn, t = ${number(time)}` : `Guesses at t = ${number(time)}`), ...rows];
}

/** One line per step until the token is settled; of many steps, some. Then the step shown and the last. */
function history(panel, place) {
  const [settled, last] = [panel.revealed(place), panel.frames.length - 1];
  const every = Math.ceil((settled + 1) / MOST_ROWS);
  const wanted = (index) => (index < settled ? index % every === 0 : index === settled) || index === panel.shown || index === last;
  const list = element("ul", { class: "history" });
  panel.frames.forEach((frame, index) => {
    if (!wanted(index)) return;
    const token = frame.tokens[place];
    const chip = element("span", { class: `token k-${frame.kinds[place]}` }, ...face(token, frame.kinds[place], panel.start.num_masks > 1));
    const guess = token.mask !== undefined && token.candidates?.[0];
    const note = guess ? `${guess[0]} ${percent(guess[1])}` : "";
    list.append(element("li", index === panel.shown ? { class: "now" } : {}, element("time", {}, `t = ${number(frame.t)}`), chip, element("span", { class: "soft" }, note)));
  });
  return list;
}

function percent(share) {
  return share < 0.1 ? `${(100 * share).toFixed(1)}%` : `${Math.round(100 * share)}%`;
}

export function number(t) {
  return String(Math.round(100 * t) / 100);
}
