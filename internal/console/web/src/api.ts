// Requests to the server, which answers errors as a Status of the Kubernetes API.
import { signal } from "@preact/signals";
import type { Session } from "./types.ts";

/** The session, null if nobody is signed in, undefined until known. */
export const session = signal<Session | null | undefined>(undefined);

export class APIError extends Error {
  readonly code: number;
  readonly reason: string;
  readonly causes: { field?: string; message?: string }[];

  constructor(code: number, reason: string, message: string, causes: { field?: string; message?: string }[] = []) {
    super(message);
    this.code = code;
    this.reason = reason;
    this.causes = causes;
  }
}

export async function errorOf(response: Response): Promise<APIError> {
  const text = await response.text();
  try {
    const status = JSON.parse(text);
    return new APIError(response.status, status.reason ?? "", status.message || response.statusText, status.details?.causes);
  } catch {
    return new APIError(response.status, "", text.trim().slice(0, 500) || response.statusText);
  }
}

/** Sends a request, again with another CSRF token if the one of the session is not current: a renewed credential has another. */
export async function request<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  try {
    return await send<T>(method, path, body, signal);
  } catch (error) {
    if (!(error instanceof APIError) || error.reason !== "CSRFTokenInvalid") throw error;
    const user = session.value?.user;
    await openSession();
    if (session.value?.user !== user) throw error;
    return send<T>(method, path, body, signal);
  }
}

async function send<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (method !== "GET" && session.value) headers["X-CSRF-Token"] = session.value.csrf;
  const init: RequestInit = { method, headers, credentials: "same-origin", redirect: "error" };
  if (signal) init.signal = signal;
  if (typeof body === "string") {
    headers["Content-Type"] = "application/yaml";
    init.body = body;
  } else if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(body);
  }
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new APIError(0, "Unreachable", "The console's server does not respond. Check that it runs and that you are connected.");
  }
  if (!response.ok) {
    const error = await errorOf(response);
    if (error.code === 401) session.value = null;
    throw error;
  }
  const text = await response.text();
  return (text && response.headers.get("Content-Type")?.includes("json") ? JSON.parse(text) : text) as T;
}

/** A function that begins a call, or if one is in progress, another one after it. A call is never cut short by the next. */
export function oneAtATime(call: () => Promise<void>): () => void {
  let busy = false;
  let again = false;
  const begin = () => {
    again = busy;
    if (busy) return;
    busy = true;
    void call().finally(() => {
      busy = false;
      if (again) begin();
    });
  };
  return begin;
}

export const get = <T>(path: string, signal?: AbortSignal) => request<T>("GET", path, undefined, signal);

export async function openSession(): Promise<void> {
  try {
    session.value = await get<Session>("/session");
  } catch (error) {
    if (!(error instanceof APIError) || error.code !== 401) throw error;
  }
}

export async function signIn(token: string): Promise<void> {
  await request("POST", "/session", { token });
  session.value = await get<Session>("/session");
}

export async function signOut(): Promise<void> {
  await request("DELETE", "/session");
  session.value = null;
}
