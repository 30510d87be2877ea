// A panel: one text while it comes to be. Everything from the server is put in as text, never as HTML.

const SIGNS = { designated: "◆", other: "◇" };

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") node.className = value;
    else node.setAttribute(name, value);
  }
  node.append(...children); // strings become text nodes
  return node;
}

/** What a state looks like: a word, or the sign of a mask with its number. */
export function face(token, kind, several) {
  if (token.mask === undefined) return [element("span", {}, token.text)];
  const sign = element("span", {}, SIGNS[kind] ?? SIGNS.other);
  if (several) sign.append(element("sub", {}, String(token.mask)));
  return [sign];
}

export function describe(token, kind) {
  if (token.mask === undefined) return token.text;
  return kind === "designated" ? `mask ${token.mask}, that of its token` : `mask ${token.mask}, another token's`;
}

/** Frames of a trace and the elements that show one of them. */
export class Panel {
  constructor(title, onSeek, onInspect) {
    this.frames = [];
    this.final = null;
    this.start = null;
    this.shown = -1;
    this.onInspect = onInspect;
    this.heading = element("h2", {}, title);
    this.cost = element("p", { class: "cost" });
    this.grid = element("div", { class: "grid", role: "group", "aria-label": "Tokens; arrow keys move, Enter keeps the details open" });
    this.map = element("canvas", { class: "map", "aria-hidden": "true", title: "Every step is a row, every token a column" });
    this.text = element("p", { class: "result-text" });
    this.node = element("article", { class: "panel card", "aria-label": title }, this.heading, this.cost, this.grid, this.map, this.text);
    const seek = (event) => {
      const box = this.map.getBoundingClientRect();
      onSeek(Math.min(1, Math.max(0, (event.clientY - box.top) / box.height)));
    };
    this.map.addEventListener("pointerdown", (event) => { this.map.setPointerCapture(event.pointerId); seek(event); });
    this.map.addEventListener("pointermove", (event) => { if (event.buttons) seek(event); });
    this.grid.addEventListener("keydown", (event) => this.#move(event));
  }

  /** A new event of the trace; true if there is a new frame. */
  take(name, data) {
    if (name === "start") {
      this.start = data;
      this.#build();
      return false;
    }
    if (name === "step") {
      this.frames.push({ t: data.t, tokens: data.tokens, kinds: data.tokens.map((token) => token.kind) });
      return true;
    }
    this.final = data;
    this.frames.push({ t: 0, tokens: data.tokens, kinds: [] });
    // What a mask meant is known only now; so far the most probable token stood for the final one.
    this.frames.forEach((frame, index) => { frame.kinds = data.kinds[index]; });
    this.rooms.forEach((room, place) => { room.textContent = data.tokens[place].text; });
    this.text.textContent = data.text;
    this.cost.replaceChildren(
      element("span", {}, element("b", {}, String(data.network_calls)), data.network_calls === 1 ? " network call" : " network calls"),
      element("span", {}, element("b", {}, data.milliseconds.toFixed(data.milliseconds < 10 ? 1 : 0)), " ms"),
      element("span", {}, element("b", {}, String(this.start.given.filter((given) => !given).length)), " tokens made"),
    );
    return true;
  }

  #build() {
    this.tokens = this.start.given.map((given, place) => {
      const button = element("button", { type: "button", class: "token", tabindex: place ? "-1" : "0" });
      button.addEventListener("pointerenter", (event) => { if (event.pointerType === "mouse") this.onInspect(this, place, false); });
      button.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") this.onInspect(this, null, false); });
      button.addEventListener("focus", () => { if (button.matches(":focus-visible")) this.onInspect(this, place, false); });
      button.addEventListener("blur", () => this.onInspect(this, null, false));
      button.addEventListener("click", () => this.onInspect(this, place, true));
      return button;
    });
    this.rooms = this.tokens.map(() => element("span", { class: "room", "aria-hidden": "true" }));
    this.grid.replaceChildren(...this.tokens);
  }

  #move(event) {
    const place = this.tokens.indexOf(document.activeElement);
    const target = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: this.tokens.length - 1 }[event.key];
    if (place < 0 || target === undefined || !this.tokens[target]) return;
    event.preventDefault();
    event.stopPropagation();
    this.tokens[place].tabIndex = -1;
    this.tokens[target].tabIndex = 0;
    this.tokens[target].focus();
  }

  /** Show frame number `index`. */
  show(index) {
    const frame = this.frames[index];
    if (!frame) return;
    const before = this.frames[this.shown];
    const several = this.start.num_masks > 1;
    frame.tokens.forEach((token, place) => {
      const button = this.tokens[place];
      const given = this.start.given[place];
      const masked = token.mask !== undefined;
      const fresh = before && this.shown < index && !masked && before.tokens[place].text !== token.text;
      button.className = `token ${given ? "given" : `k-${frame.kinds[place]}`}${token.special ? " special" : ""}${fresh ? " fresh" : ""}`;
      const sure = element("span", { class: "sure" });
      sure.style.setProperty("--sure", masked ? `${100 * (token.confidence ?? 0)}%` : "0%");
      button.replaceChildren(this.rooms[place], ...face(token, frame.kinds[place], several), sure);
      button.setAttribute("aria-label", given ? `${token.text}, given` : describe(token, frame.kinds[place]));
    });
    this.shown = index;
    this.paint();
  }

  /** The map: steps downwards, positions across, the shown step between two lines. */
  paint() {
    const rows = this.start ? this.start.steps + 1 : 1;
    const columns = this.tokens?.length ?? 1;
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    const [width, height] = [Math.max(1, this.map.clientWidth), Math.max(1, this.map.clientHeight)];
    [this.map.width, this.map.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    const brush = this.map.getContext("2d");
    brush.scale(ratio, ratio);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const colours = { clean: colour("clean"), designated: colour("designated"), other: colour("other") };
    const [line, card] = [colour("line"), colour("card")];
    brush.fillStyle = card;
    brush.fillRect(0, 0, width, height);
    const [w, h] = [width / columns, height / rows];
    const gap = Math.min(1, w / 6, h / 6);
    this.frames.forEach((frame, row) => {
      frame.kinds.forEach((kind, column) => {
        brush.fillStyle = this.start.given[column] ? line : colours[kind];
        brush.fillRect(column * w, row * h, w - gap, h - gap);
      });
    });
    brush.strokeStyle = colour("ink");
    brush.lineWidth = 1.5;
    brush.strokeRect(0.75, this.shown * h + 0.75, width - 1.5, Math.max(2, h - 1.5));
  }

  /** The frame in which a position got its token; the last one if it changed until then. */
  revealed(place) {
    const last = this.frames.length - 1;
    let frame = last;
    while (frame > 0 && this.frames[frame - 1].tokens[place].text === this.frames[last].tokens[place].text) frame -= 1;
    return frame;
  }
}
