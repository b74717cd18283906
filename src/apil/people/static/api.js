// Calls to the server. An answer that cannot be sent is kept in the browser and sent when the server is back.

const OUTBOX = "apil-outbox";

export function key() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export async function get(path) {
  return fetch(path, { credentials: "same-origin", cache: "no-store" });
}

export async function post(path, sent) {
  return fetch(path, {
    method: "POST",
    credentials: "same-origin",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(sent),
  });
}

function waiting() {
  try {
    return JSON.parse(localStorage.getItem(OUTBOX)) || [];
  } catch {
    return [];
  }
}

// What is not sent yet. Each entry has a key of its own: sent twice, it is still one answer.
export class Outbox {
  constructor(listener) {
    this.listener = listener;
    this.sending = false;
  }

  get length() {
    return waiting().length;
  }

  add(path, sent) {
    localStorage.setItem(OUTBOX, JSON.stringify([...waiting(), { path, sent }]));
    return this.flush();
  }

  // Sends in order; stops at the first that does not get through, and tries again later.
  async flush() {
    if (this.sending) return;
    this.sending = true;
    try {
      for (let next = waiting()[0]; next; next = waiting()[0]) {
        const response = await post(next.path, next.sent);
        if (response.status >= 500 || response.status === 429) throw new Error(`status ${response.status}`);
        localStorage.setItem(OUTBOX, JSON.stringify(waiting().slice(1)));
        this.listener("sent", response.status, await response.json().catch(() => ({})));
      }
    } catch {
      this.listener("kept", 0, {});
      setTimeout(() => this.flush(), 1000);
    } finally {
      this.sending = false;
    }
  }
}

// Server-sent events that come back by themselves; `heard` gets each, `lost` hears of a break.
export function listen(path, heard, lost) {
  let source;
  const open = () => {
    source = new EventSource(path);
    source.onmessage = (event) => heard(JSON.parse(event.data));
    source.onerror = () => {
      lost();
      if (source.readyState === EventSource.CLOSED) setTimeout(open, 2000);
    };
  };
  open();
}
