// Server-sent events over fetch: unlike EventSource, it resumes with the last ID after the page was hidden, and
// reports why the server refuses.

export interface Message {
  event: string;
  data: string;
  id: string;
}

/** Splits a stream into messages. Feed returns those that are complete. */
export class Parser {
  #rest: string[] = [];
  #event = "";
  #data: string[] = [];
  #id = "";

  feed(chunk: string): Message[] {
    const messages: Message[] = [];
    let from = 0;
    for (let end = chunk.indexOf("\n"); end >= 0; end = chunk.indexOf("\n", from)) {
      this.#rest.push(chunk.slice(from, end));
      const line = this.#rest.length === 1 ? (this.#rest[0] ?? "") : this.#rest.join("");
      this.#rest = [];
      from = end + 1;
      const message = this.#line(line.endsWith("\r") ? line.slice(0, -1) : line);
      if (message) messages.push(message);
    }
    if (from < chunk.length) this.#rest.push(chunk.slice(from));
    return messages;
  }

  #line(line: string): Message | undefined {
    if (line === "") {
      const message = this.#data.length > 0 ? { event: this.#event || "message", data: this.#data.join("\n"), id: this.#id } : undefined;
      this.#event = "";
      this.#data = [];
      return message;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return undefined;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "event") this.#event = value;
    else if (field === "data") this.#data.push(value);
    else if (field === "id") this.#id = value;
    return undefined;
  }
}

/** How long to wait before the next attempt, with jitter against many pages at once. */
export function backoff(attempt: number, random: number): number {
  return Math.min(15_000, 250 * 2 ** Math.min(attempt, 10)) * (0.5 + random / 2);
}
