// State of the whole page: the address, the time, the theme, the messages.
import { effect, signal } from "@preact/signals";
import { parse, type Route } from "./route.ts";
import { version } from "./store.ts";

export const route = signal<Route>(parse(location.hash));

addEventListener("hashchange", () => (route.value = parse(location.hash)));

/** Changes the parameters of the address without a step in the history. */
export function setParams(changes: Record<string, string>): void {
  const { path, params } = route.value;
  const next = new URLSearchParams(params);
  for (const [name, value] of Object.entries(changes)) {
    if (value) next.set(name, value);
    else next.delete(name);
  }
  history.replaceState(null, "", `#/${path.map(encodeURIComponent).join("/")}${next.size > 0 ? `?${next}` : ""}`);
  route.value = { path, params: next };
}

/** The time, each second while the page is visible. */
export const now = signal(Date.now());
setInterval(() => {
  if (document.visibilityState === "visible") now.value = Date.now();
}, 1000);

/** Follows the version of the rows, at most once for each frame. */
export const frame = signal(0);
let scheduled = false;
effect(() => {
  void version.value;
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    frame.value = version.peek();
  });
});

export type Theme = "" | "light" | "dark";

const stored = (name: string) => {
  try {
    return localStorage.getItem(name) ?? "";
  } catch {
    return "";
  }
};

export const theme = signal<Theme>(stored("theme") as Theme);
effect(() => {
  document.documentElement.dataset["theme"] = theme.value;
  try {
    localStorage.setItem("theme", theme.value);
  } catch {
    // The browser keeps nothing: the theme lasts as long as the page.
  }
});

export interface Toast {
  id: number;
  text: string;
  bad: boolean;
}

export const toasts = signal<Toast[]>([]);
let lastToast = 0;

export function say(text: string, bad = false): void {
  const toast = { id: ++lastToast, text, bad };
  toasts.value = [...toasts.value, toast];
  setTimeout(() => dismiss(toast.id), bad ? 12_000 : 5_000);
}

export function dismiss(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}
