// What is known of one token: its guesses at the step that is shown, and its history.

import { element, face } from "./grid.js";

const MOST_ROWS = 10;

/** The content of the inspector for a position of a panel. */
export function details(panel, place) {
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

/** One line per step; of many steps, some. */
function history(panel, place) {
  const count = panel.frames.length;
  const every = Math.max(1, Math.ceil(count / MOST_ROWS));
  const wanted = (index) => index % every === 0 || index === count - 1 || index === panel.shown || index === panel.revealed(place);
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
