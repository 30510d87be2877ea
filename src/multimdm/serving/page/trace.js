// The server's API: the list of models, and the events of a trace.

/** An error with words for the reader. */
export class Problem extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

async function ask(address, key, options = {}) {
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  let response;
  try {
    response = await fetch(address, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The server does not answer. Is it still running? Start it again, then press Generate.");
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

async function problemOf(response) {
  let message = `The server answered ${response.status}.`;
  try {
    message = (await response.json()).error.message;
  } catch {
    // Not in our form: the status has to do.
  }
  return new Problem(message, response.status);
}

export async function models(key) {
  return (await (await ask("/v1/models", key)).json()).data;
}

/** The events of POST /v1/trace as [name, data], one after the other. */
export async function* trace(request, key, signal) {
  const response = await ask("/v1/trace", key, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(request),
    signal,
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem("The connection broke before the text was finished.");
    }
    if (piece.done) return;
    text += piece.value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      const [, name, data] = /^event: (\w+)\ndata: (.*)$/.exec(event);
      const content = JSON.parse(data);
      if (name === "error") throw new Problem(content.error.message, 500);
      yield [name, content];
    }
  }
}
