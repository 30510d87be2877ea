// The controls: what to generate, playback, comparison, sharing.

import { recall, remember } from "./address.js";
import { Panel, element } from "./grid.js";
import { closeInspector, inspect, number, refreshInspector } from "./inspector.js";
import { Problem, models, trace } from "./trace.js";

const $ = (id) => document.getElementById(id);
const SLIDERS = ["steps", "temperature", "length", "seed", "steps-b"];
const ADVISED = ["steps", "temperature", "sampler"]; // what a model may have advice for
const ORDERS = { ancestral: "at random", confidence: "surest first", left_to_right: "left to right", rewrite: "rewriting" };
const REPLAY = { frame: 420, whole: 4500 }; // milliseconds: per step, and at most for all
const calm = matchMedia("(prefers-reduced-motion: reduce)");

let gap = "[MASK]";
let facts = {}; // of every model, by name
let followed = Object.fromEntries(ADVISED.map((id) => [id, $(id).value])); // what the controls were last set to
let apart = false; // whether the reader gave the other side a number of steps of its own
let panels = [];
let position = 0; // of the longest panel
let timer = null;
let running = null;
let wanted = null; // a step that the address names, to be shown when the text is there

// ------------------------------------------------------------------ settings

function refresh() {
  if (!apart) $("steps-b").value = $("steps").value; // a comparison is fair at equal K, unless it is asked to be unequal
  for (const id of SLIDERS) $(`${id}-value`).textContent = id === "temperature" ? Number($(id).value).toFixed(2) : $(id).value;
  const gaps = $("prompt").value.includes(gap);
  $("length").disabled = gaps;
  if (gaps) $("length-value").textContent = "of the text";
  $("other-side").hidden = !$("compare").checked;
  const own = facts[$("model").value];
  if (!own) return;
  for (const option of $("sampler").options) option.disabled = !own.samplers.includes(option.value);
  if ($("sampler").selectedOptions[0]?.disabled) $("sampler").value = own.defaults.sampler;
  introduce(own.start);
}

/** What the chosen model knows, and prompts to click. */
function introduce({ knows, examples }) {
  $("knows").textContent = knows ?? "";
  $("knows").hidden = !knows;
  $("examples").hidden = !examples.length;
  if ($("examples").dataset.of === $("model").value) return;
  $("examples").dataset.of = $("model").value;
  $("examples").replaceChildren(...examples.map((text) => element("button", { type: "button", class: "quiet example" }, `${text} …`)));
  [...$("examples").children].forEach((button, number) => button.addEventListener("click", () => ask(examples[number])));
}

function ask(prompt) {
  $("prompt").value = prompt;
  refresh();
  generate();
}

/** Set the controls as the model wants to be sampled, except those that the reader has moved or the address has named. */
function follow(named = []) {
  const defaults = facts[$("model").value]?.defaults ?? {}; // none before the server has answered
  for (const id of ADVISED.filter((one) => one in defaults)) {
    if ($(id).value === followed[id] && !named.includes(id)) {
      $(id).value = defaults[id];
      followed[id] = $(id).value; // a slider may hold another number than it was given
    } else {
      followed[id] = String(defaults[id]);
    }
  }
  refresh();
}

function describeModels(list) {
  for (const id of ["model", "model-b"]) {
    const chosen = $(id).value;
    $(id).replaceChildren(...list.map((model) => new Option(model.id, model.id)));
    if (list.some((model) => model.id === chosen)) $(id).value = chosen;
  }
  if (list.length > 1 && !location.hash) $("model-b").selectedIndex = 1;
  const all = list.map((model) => model.multimdm);
  facts = Object.fromEntries(list.map((model) => [model.id, model.multimdm]));
  gap = all[0].gap;
  const whole = $("length").value === $("length").max; // the longest stays the longest
  $("length").max = Math.max(...all.map((fact) => fact.max_length));
  if (whole) $("length").value = $("length").max;
  for (const id of ["steps", "steps-b"]) $(id).max = Math.min(64, ...all.map((fact) => fact.max_steps));
  const orders = Object.keys(ORDERS).filter((order) => all.some((fact) => fact.samplers.includes(order)));
  const order = $("sampler").value;
  $("sampler").replaceChildren(...orders.map((one) => new Option(ORDERS[one], one)));
  $("sampler").value = order;
  $("sampler").disabled = orders.length < 2;
  follow();
}

function request(side) {
  const second = side === 1;
  const body = {
    model: $(second ? "model-b" : "model").value,
    prompt: $("prompt").value,
    steps: Number($(second ? "steps-b" : "steps").value),
    temperature: Number($("temperature").value),
    seed: Number($("seed").value),
    sampler: $("sampler").value,
    candidates: 5,
  };
  // The other side shares two settings; where they are as the first model advises, it follows its own advice.
  if (second && $("temperature").value === followed.temperature) delete body.temperature;
  if (second && (body.sampler === followed.sampler || !facts[body.model].samplers.includes(body.sampler))) delete body.sampler;
  return body.prompt.includes(gap) ? body : { ...body, length: Number($("length").value) };
}

// ---------------------------------------------------------------- generation

async function generate() {
  running?.abort();
  const own = new AbortController();
  running = own;
  stop();
  closeInspector();
  complain("");
  remember();
  const sides = $("compare").checked ? [0, 1] : [0];
  const requests = sides.map(request);
  panels = requests.map((body) => new Panel(title(body), seekTo, inspect));
  $("panels").replaceChildren(...panels.map((panel) => panel.node));
  $("result").hidden = false;
  $("empty").hidden = true;
  $("generate").setAttribute("aria-busy", "true");
  position = 0;
  try {
    // One after the other: together they would share the machine, and the times would mean nothing.
    for (const [side, body] of requests.entries()) await watch(panels[side], body, own.signal);
    finish();
  } catch (error) {
    if (error.name === "AbortError") return;
    fail(error);
  } finally {
    if (running === own) {
      running = null;
      $("generate").removeAttribute("aria-busy");
    }
  }
}

async function watch(panel, body, signal) {
  for await (const [name, data] of trace(body, $("key").value, signal)) {
    if (panel.take(name, data)) panel.show(panel.frames.length - 1);
    else legend();
  }
  if (!panel.final) throw new Problem("The connection broke before the text was finished.");
}

function title(body) {
  return `${body.model}, ${body.steps} ${body.steps === 1 ? "step" : "steps"}`;
}

function finish() {
  $("said").textContent = panels.map((panel) => `${panel.final.text}. ${panel.final.network_calls} network calls.`).join(" ");
  $("scrub").max = last();
  const step = wanted ?? (calm.matches ? last() : null);
  wanted = null;
  if (step !== null) return show(step);
  show(0);
  play();
}

function fail(error) {
  if (!(error instanceof Problem)) console.error(error);
  if (error.status === 401) {
    $("key-field").hidden = false;
    $("key").focus();
  }
  wanted = null;
  panels = panels.filter((panel) => panel.frames.length); // what came before the fault can be looked at
  $("panels").replaceChildren(...panels.map((panel) => panel.node));
  $("result").hidden = !panels.length;
  $("scrub").max = last();
  show(last());
  complain(error instanceof Problem ? error.message : "Something went wrong on this page; its console tells more.");
}

function complain(text) {
  $("problem").textContent = text;
  $("problem").hidden = !text;
}

// ------------------------------------------------------------------ playback

const last = () => Math.max(0, ...panels.map((panel) => panel.frames.length - 1));

/** Show a step of the longest panel; shorter ones keep pace in proportion. */
function show(step) {
  position = Math.min(Math.max(0, step), last());
  for (const panel of panels) {
    const frames = panel.frames.length - 1;
    panel.show(last() ? Math.floor((position * frames) / last() + 1e-9) : 0);
  }
  $("scrub").value = position;
  const t = panels[0] && longest().frames[position]?.t;
  $("where").textContent = `step ${position} of ${last()} · t = ${number(t ?? 0)}`;
  $("scrub").setAttribute("aria-valuetext", $("where").textContent);
  refreshInspector();
}

const longest = () => panels.reduce((a, b) => (b.frames.length > a.frames.length ? b : a));

function play() {
  if (!panels.length || running && !panels.at(-1).final) return;
  if (position >= last()) show(0);
  const pause = Math.min(REPLAY.frame, REPLAY.whole / Math.max(1, last()));
  timer = setInterval(() => {
    show(position + 1);
    if (position >= last()) stop();
  }, pause);
  playing(true);
}

function stop() {
  clearInterval(timer);
  timer = null;
  playing(false);
}

function playing(on) {
  $("play").textContent = on ? "❚❚" : "▶";
  $("play").setAttribute("aria-label", on ? "Pause" : "Play");
}

const toggle = () => (timer ? stop() : play());

function walk(by) {
  stop();
  show(position + by);
}

function seekTo(share) {
  stop();
  show(Math.min(last(), Math.floor(share * (last() + 1))));
}

function legend() {
  const masked = panels.some((panel) => panel.start?.num_masks > 0);
  const several = panels.some((panel) => panel.start?.num_masks > 1);
  const entries = [["token given", "word", "given"], [masked ? "clean" : "final token", "word", "k-clean"]];
  if (masked) entries.push([several ? "designated mask: that of the final token" : "mask", "◆", "k-designated"]);
  if (several) entries.push(["other mask", "◇", "k-other"]);
  if (!masked) entries.push(["another token", "word", "k-other"]);
  $("legend").replaceChildren(...entries.map(([name, sign, kind]) => element("li", {}, element("span", { class: `token ${kind}` }, sign), name)));
}

// ------------------------------------------------------------------- sharing

async function share() {
  remember(position < last() ? position : null);
  try {
    await navigator.clipboard.writeText(location.href);
    $("share").textContent = "Copied";
  } catch {
    $("share").textContent = "It is in the address bar";
  }
  setTimeout(() => { $("share").textContent = "Copy link"; }, 1800);
}

// --------------------------------------------------------------------- start

function insertGap() {
  const box = $("prompt");
  const [before, after] = [box.value.slice(0, box.selectionStart), box.value.slice(box.selectionEnd)];
  const text = `${before && !before.endsWith(" ") ? " " : ""}${gap}`;
  box.value = before + text + after;
  box.focus();
  box.selectionStart = box.selectionEnd = before.length + text.length;
  refresh();
}

function onKey(event) {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) return $("controls").requestSubmit();
  if (event.key === "Escape") return closeInspector();
  const busy = event.key === " " ? "textarea, input, select, button" : "textarea, input, select";
  if ($("result").hidden || event.target.closest(busy)) return; // the key means something else there
  const action = { " ": toggle, ArrowRight: () => walk(1), ArrowLeft: () => walk(-1) }[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

/** Show what the address holds, if it holds anything. */
async function openAddress() {
  const { any, step, missing, named } = recall();
  apart ||= named.includes("steps-b");
  follow(named);
  if (!any && !facts[$("model").value].start.at_once) return;
  wanted = step;
  await generate();
  if (missing.length) complain(`The link names ${missing.join(" and ")}, which this server does not have; this is by another model.`);
}

async function start() {
  try {
    describeModels(await models($("key").value));
    return true;
  } catch (error) {
    fail(error);
    return false;
  }
}

$("controls").addEventListener("submit", async (event) => {
  event.preventDefault();
  if ($("model").options.length) return void generate();
  if (await start()) await (location.hash ? openAddress() : generate()); // it did not answer before, or wanted a key
});
$("controls").addEventListener("input", refresh);
$("steps-b").addEventListener("input", () => { apart = true; });
$("model").addEventListener("change", () => follow());
$("gap").addEventListener("click", insertGap);
$("clear").addEventListener("click", () => { $("prompt").value = ""; $("prompt").focus(); refresh(); });
$("dice").addEventListener("click", () => { $("seed").value = Math.floor(1000 * Math.random()); refresh(); });
$("share").addEventListener("click", share);
$("play").addEventListener("click", toggle);
$("back").addEventListener("click", () => walk(-1));
$("forward").addEventListener("click", () => walk(1));
$("scrub").addEventListener("input", () => { stop(); show(Number($("scrub").value)); });
$("key").addEventListener("change", () => { sessionStorage.setItem("multimdm-key", $("key").value); });
document.addEventListener("keydown", onKey);
window.addEventListener("resize", () => { panels.forEach((panel) => panel.paint()); closeInspector(); });
window.addEventListener("scroll", refreshInspector, { passive: true });
window.addEventListener("hashchange", openAddress); // a link put into the address of this page
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => panels.forEach((panel) => panel.paint()));

$("key").value = sessionStorage.getItem("multimdm-key") ?? "";
refresh();
if (await start()) openAddress();
