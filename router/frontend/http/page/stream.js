"use strict";

// --- The stream of an answer, resumed when its connection breaks ---

const kRetryMs = [250, 500, 1000, 2000];  // the last value repeats
const kGiveUpMs = 60_000;  // the default of the server's --resume-time

const headers = () => {
  const fields = { "Content-Type": "application/json" };
  if ($("key").value) fields.Authorization = `Bearer ${$("key").value}`;
  return fields;
};

class Refused extends Error {
  constructor(status, { message, param }) {
    super(message);
    this.status = status;
    this.param = param;
  }
}

// Yields a stream's events. Throws TypeError if the connection breaks, as fetch() does.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  while (true) {
    const { value, done } = await reader.read();
    if (done) throw new TypeError("the stream ended too early");
    held += value;
    let end;
    while ((end = held.indexOf("\n\n")) >= 0) {
      const event = held.slice(0, end);
      held = held.slice(end + 2);
      const [, id, data] = /^(?:id: (\d+)\n)?data: (.*)$/.exec(event) ?? [];
      if (data === "[DONE]") return;
      if (data) yield { id, data: JSON.parse(data) };
    }
  }
}

// After a reconnect, the server sends events without an id again. So they are held back until the next event with an id.
async function* wholeEntries(body, place) {
  let held = [];
  for await (const { id, data } of events(body)) {
    held.push(data);
    if (id === undefined) continue;
    place.n_tokens = Number(id);
    yield* held;
    held = [];
  }
  yield* held;
}

function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });
}

async function ask(path, options) {
  const response = await fetch(path, { headers: headers(), ...options });
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  throw new Refused(response.status, said.error ?? { message: `the server answered ${response.status}` });
}

// Yields the events of a request's answer. `signal` also ends the request on the server. Calls `showLost(true)` when the
// connection breaks and `showLost(false)` when the answer continues.
async function* answerEvents(path, request, signal, showLost) {
  const name = Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const place = { n_tokens: 0 };
  let resumable = true;
  let sent = false;  // true: the server may have this stream
  let lostAt = null;
  let tries = 0;
  const begin = () => {
    sent = resumable;
    const extra = resumable ? { request_id: name, stream_options: { ...request.stream_options, resumable } } : {};
    return ask(path, { method: "POST", body: JSON.stringify({ ...request, ...extra }), signal });
  };
  signal.addEventListener("abort", () => {
    if (sent) fetch(`/v1/streams/${name}`, { method: "DELETE", headers: headers(), keepalive: true }).catch(() => {});
  }, { once: true });
  while (true) {
    try {
      const response = await (sent ? ask(`/v1/streams/${name}?from=${place.n_tokens}`, { signal }) : begin());
      for await (const event of wholeEntries(response.body, place)) {
        if (lostAt !== null) showLost(false);
        lostAt = null;
        tries = 0;
        yield event;
      }
      sent = false;
      return;
    } catch (error) {
      const refused = error instanceof Refused ? error.status : 0;
      if (sent && lostAt === null && (refused === 429 || error.param === "stream_options.resumable")) {
        resumable = sent = false;  // this server keeps no further streams
        continue;
      }
      if (sent && lostAt !== null && refused === 404 && place.n_tokens === 0) {
        sent = false;  // the server never received the request
        continue;
      }
      const broken = error instanceof TypeError || (lostAt !== null && (refused === 429 || refused >= 500));
      if (!broken || !resumable) throw error;
      lostAt ??= performance.now();
      if (performance.now() - lostAt > kGiveUpMs) throw error;
      showLost(true);
      await sleep(kRetryMs[Math.min(tries++, kRetryMs.length - 1)], signal);
    }
  }
}
