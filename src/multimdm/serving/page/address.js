// The address holds the settings, so that a state can be shared. It never holds the key.

const FIELDS = { p: "prompt", k: "steps", t: "temperature", l: "length", s: "seed", m: "model", o: "sampler", k2: "steps-b", m2: "model-b" };
const $ = (id) => document.getElementById(id);

/** Write the settings into the address, and the step that is shown if one is named. */
export function remember(step = null) {
  const compared = $("compare").checked;
  const fields = new URLSearchParams();
  for (const [short, id] of Object.entries(FIELDS)) if (compared || !id.endsWith("-b")) fields.set(short, $(id).value);
  if (compared) fields.set("c", "1");
  if (step !== null) fields.set("at", String(step));
  history.replaceState(null, "", `#${fields}`);
}

/** Settings as the address has them: whether it has any, which controls it names, the step to show, and models that this
 * server does not have. */
export function recall() {
  const fields = new URLSearchParams(location.hash.slice(1));
  const [missing, named] = [[], []];
  for (const [short, id] of Object.entries(FIELDS)) {
    if (!fields.has(short)) continue;
    const [field, value] = [$(id), fields.get(short)];
    const known = !field.options || [...field.options].some((option) => option.value === value);
    if (known) {
      field.value = value;
      named.push(id);
    } else if (id.startsWith("model")) missing.push(value);
  }
  $("compare").checked = fields.get("c") === "1";
  return { any: fields.size > 0, step: fields.has("at") ? Number(fields.get("at")) || 0 : null, missing, named };
}
