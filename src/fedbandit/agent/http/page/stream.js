// Reads server-sent events with fetch, which tells why it was refused (EventSource does not), and connects again.

const FIRST_WAIT = 0.5;
const LONGEST_WAIT = 15;
const SILENCE = 30; // the server sends a comment every ten seconds
const POLL = 5; // seconds between questions where all places are taken

/** Splits text into events, however it arrives. */
export class EventParser {
  #rest = "";

  /** The events that `text` completes, as `[type, data]`. */
  feed(text) {
    const blocks = (this.#rest + text).replaceAll("\r\n", "\n").split("\n\n");
    this.#rest = blocks.pop();
    return blocks.map(parsed).filter((event) => event !== null);
  }
}

function parsed(block) {
  let type = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) type = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
  }
  return data.length === 0 ? null : [type, data.join("\n")];
}

/** The error of a refusal: its code, if it has one, and its message, in the words of the server. */
async function errorOf(answer) {
  const unknown = { code: null, message: `the agent answered ${answer.status}` };
  try {
    return { ...unknown, ...(await answer.json()).error };
  } catch {
    return unknown;
  }
}

/** What a refusal says, in the words of the server. */
export const wordsOf = async (answer) => (await errorOf(answer)).message;

/**
 * An endless stream from `path`. Calls `onEvent(type, data)` with parsed JSON, and `onConnection({kind, ...})`:
 * `connecting`, `live` (with the server's clock minus ours), `waiting` (until, reason), `polling` (reason, every so
 * many seconds), and `refused` (status, reason), after which it ends until `start` is called again. It polls where the
 * server has no place for another stream, and there is `poll()`, which reads what the stream would tell.
 */
export class Stream {
  #abort = null;
  #number = 0;
  #wake = null;

  constructor(path, onEvent, onConnection, poll = null) {
    Object.assign(this, { path, onEvent, onConnection, poll });
  }

  /** Connect, dropping what was open before. */
  start() {
    this.stop();
    this.#number += 1;
    void this.#run(this.#number);
  }

  /** Close. */
  stop() {
    this.#number += 1;
    this.#abort?.abort();
    this.#wake?.();
  }

  /** Do not wait any longer, if it waits. */
  hurry() {
    this.#wake?.();
  }

  async #run(number) {
    const isCurrent = () => number === this.#number;
    let isPolling = false;
    for (let failures = 0; isCurrent(); failures += 1) {
      let reason = "the connection broke off";
      let heard = false;
      if (failures === 0 && !isPolling) this.onConnection({ kind: "connecting" });
      try {
        for await (const [type, data] of this.#connect(isCurrent)) {
          heard = true;
          this.onEvent(type, JSON.parse(data));
        }
      } catch (error) {
        if (!isCurrent()) return;
        if (error instanceof Refusal && error.status < 500 && error.status !== 429) {
          this.onConnection({ kind: "refused", status: error.status, reason: error.message });
          return;
        }
        if (error instanceof Refusal && error.code === "busy" && this.poll !== null) {
          isPolling = await this.#polled(error.message);
          if (!isCurrent()) return;
          if (isPolling) {
            failures = -1;
            await this.#wait(POLL);
            continue;
          }
        }
        if (error instanceof Refusal) reason = error.message;
        else if (!(error instanceof DOMException) && !(error instanceof TypeError))
          throw error; // ours, not the network's
        else if (!heard) reason = "the agent does not answer";
      }
      if (!isCurrent()) return;
      if (heard) failures = 0;
      const wait = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** failures) * (0.75 + 0.5 * Math.random());
      this.onConnection({ kind: "waiting", until: Date.now() / 1000 + wait, reason });
      await this.#wait(wait);
    }
  }

  #wait(seconds) {
    return new Promise((done) => {
      this.#wake = done;
      setTimeout(done, 1000 * seconds);
    });
  }

  /** Ask once instead of listening; whether that worked. */
  async #polled(reason) {
    try {
      await this.poll();
    } catch {
      return false; // then the connection is what is wrong
    }
    this.onConnection({ kind: "polling", every: POLL, reason });
    return true;
  }

  async *#connect(isCurrent) {
    const abort = (this.#abort = new AbortController());
    let timer = setTimeout(() => abort.abort(), 1000 * SILENCE);
    try {
      const answer = await fetch(this.path, {
        headers: { Accept: "text/event-stream" },
        cache: "no-store",
        signal: abort.signal,
      });
      if (!answer.ok) throw new Refusal(answer.status, await errorOf(answer));
      const date = Date.parse(answer.headers.get("Date") ?? "");
      this.onConnection({ kind: "live", ahead: Number.isNaN(date) ? 0 : (date - Date.now()) / 1000 });
      const parser = new EventParser();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done || !isCurrent()) return;
        clearTimeout(timer);
        timer = setTimeout(() => abort.abort(), 1000 * SILENCE);
        yield* parser.feed(value);
      }
    } finally {
      clearTimeout(timer);
      abort.abort();
    }
  }
}

class Refusal extends Error {
  constructor(status, { code, message }) {
    super(message);
    Object.assign(this, { status, code });
  }
}
