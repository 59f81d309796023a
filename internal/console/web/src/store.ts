// The rows of the fleet, kept current by one watch.
import { batch, effect, signal } from "@preact/signals";
import { errorOf, session } from "./api.ts";
import { backoff, Parser, type Message } from "./stream.ts";
import type { KindError, Row } from "./types.ts";

export type Connection = "connecting" | "live" | "broken" | "paused";

/** All rows by kind, namespace and name. The map is changed in place; version changes with it. */
export const rows = new Map<string, Row>();
export const version = signal(0);
export const connection = signal<Connection>("connecting");
export const refusals = signal<KindError[]>([]);
/** Why the watch is broken. */
export const failure = signal("");
/** The only namespace that is watched; all if it is empty. */
export const scope = signal("");
/** The rows that changed last, for the flash in the list. */
export const changed = new Map<string, number>();

export function keyOf(row: { kind: string; namespace: string; name: string }): string {
  return `${row.kind}/${row.namespace}/${row.name}`;
}

export function apply(message: Message): void {
  if (message.event === "SYNC") {
    const sync = JSON.parse(message.data) as { items?: Row[]; errors?: KindError[] };
    rows.clear();
    changed.clear();
    for (const row of sync.items ?? []) rows.set(keyOf(row), row);
    refusals.value = sync.errors ?? [];
    return;
  }
  const row = JSON.parse(message.data) as Row;
  const key = keyOf(row);
  if (message.event === "DELETED") {
    rows.delete(key);
    changed.delete(key);
  } else if (message.event === "ADDED" || message.event === "MODIFIED") {
    rows.set(key, row);
    changed.set(key, performance.now());
  }
}

/** Three times the interval at which the server sends a comment. */
const silence = 45_000;

export async function read(body: ReadableStream<Uint8Array>, received: (id: string) => void): Promise<void> {
  const parser = new Parser();
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let isSilent = false;
  for (;;) {
    // A connection can end without notice, for example when a laptop changes its network.
    const timer = setTimeout(() => ((isSilent = true), reader.cancel()), silence);
    const { done, value } = await reader.read().finally(() => clearTimeout(timer));
    if (isSilent) throw new Error("the server sends nothing");
    if (done) return;
    const messages = parser.feed(decoder.decode(value, { stream: true }));
    if (messages.length === 0) continue;
    batch(() => {
      for (const message of messages) {
        apply(message);
        if (message.id) received(message.id);
      }
      version.value++;
      connection.value = "live";
      failure.value = "";
    });
  }
}

const sleep = (milliseconds: number, signal: AbortSignal) =>
  new Promise<void>((done) => {
    const timer = setTimeout(done, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), done()));
    addEventListener("online", () => done(), { once: true, signal });
  });

async function watch(namespace: string, position: { id: string }, stop: AbortSignal): Promise<void> {
  const path = `/watch?${new URLSearchParams({ view: "summary", ...(namespace ? { namespace } : {}) })}`;
  for (let attempt = 0; !stop.aborted; attempt++) {
    try {
      const headers: Record<string, string> = { Accept: "text/event-stream" };
      if (position.id) headers["Last-Event-ID"] = position.id;
      const response = await fetch(path, { headers, signal: stop, credentials: "same-origin", cache: "no-store" });
      if (response.status === 401) {
        session.value = null;
        return;
      }
      if (!response.ok) throw await errorOf(response);
      if (position.id) connection.value = "live"; // what was missed follows, if anything
      await read(response.body!, (id) => {
        position.id = id;
        attempt = 0;
      });
    } catch (error) {
      if (stop.aborted) return;
      failure.value = error instanceof TypeError ? "the server does not respond" : String((error as Error).message);
    }
    if (stop.aborted) return;
    connection.value = "broken";
    await sleep(backoff(attempt, Math.random()), stop);
  }
}

/** How long a hidden page keeps its watch: browsers allow few connections to one host over HTTP/1.1. */
const hiddenFor = 60_000;

/** Watches while a user is signed in and the page is visible. */
export function start(): void {
  const visible = signal(true);
  let timer = 0;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (document.visibilityState === "visible") visible.value = true;
    else timer = window.setTimeout(() => (visible.value = false), hiddenFor);
  });
  let position = { id: "" };
  let watched = "";
  effect(() => {
    const user = session.value ? `${session.value.cluster} ${session.value.user} ${scope.value}` : "";
    if (user !== watched) {
      watched = user;
      position = { id: "" };
      rows.clear();
      refusals.value = [];
    }
    if (!user) return;
    if (!visible.value) {
      connection.value = "paused";
      return;
    }
    connection.value = "connecting";
    const stop = new AbortController();
    void watch(scope.value, position, stop.signal);
    return () => stop.abort();
  });
}
