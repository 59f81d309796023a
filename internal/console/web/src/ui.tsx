// The parts that views share.
import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { APIError, get, oneAtATime } from "./api.ts";
import type { Line } from "./diff.ts";
import type { Tone } from "./fleet.ts";
import { objectHref, resourceOf } from "./route.ts";
import { now } from "./state.ts";
import { scope } from "./store.ts";
import { absolute, age } from "./text.ts";
import type { KindError, Reference } from "./types.ts";

/** A shape for each tone, so that color is never the only sign. */
const shapes: Record<Tone | "none", preact.JSX.Element> = {
  good: <circle cx="6" cy="6" r="4.5" fill="currentColor" />,
  wait: (
    <>
      <circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="1.5" />
      <path d="M6 2a4 4 0 0 1 0 8z" fill="currentColor" />
    </>
  ),
  bad: <path d="M6 .9 11.6 11H.4z" fill="currentColor" />,
  hold: <path d="M2.5 1.5h2.6v9H2.5zM6.9 1.5h2.6v9H6.9z" fill="currentColor" />,
  gone: <path d="m2.5 2.5 7 7m0-7-7 7" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" />,
  none: <circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="1.5" stroke-dasharray="2 1.6" />,
};

export function Mark({ tone }: { tone: Tone | "none" }) {
  return (
    <svg class={`mark ${tone}`} viewBox="0 0 12 12" aria-hidden="true" focusable="false">
      {shapes[tone]}
    </svg>
  );
}

export function State({ tone, children }: { tone: Tone | "none"; children: ComponentChildren }) {
  return (
    <span class={`state ${tone}`}>
      <Mark tone={tone} />
      <span>{children}</span>
    </span>
  );
}

export function readyTone(ready: string): Tone | "none" {
  return ready === "True" ? "good" : ready === "False" ? "wait" : ready === "Missing" ? "bad" : "none";
}

export function Age({ time, suffix = "" }: { time: string | undefined; suffix?: string }) {
  const text = age(time, now.value);
  if (!text) return <span class="muted">–</span>;
  return (
    <time dateTime={time} title={absolute(time)}>
      {text}
      {suffix}
    </time>
  );
}

/** A kind and name; a link if the console shows the kind. */
export function Ref({ object, within }: { object: Reference; within?: string | undefined }) {
  const name = object.namespace && object.namespace !== within ? `${object.namespace}/${object.name}` : object.name;
  return (
    <span class="ref">
      <span class="ref-kind">{object.kind}</span> {resourceOf(object.kind) ? <a href={objectHref(object)}>{name}</a> : <span>{name}</span>}
    </span>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

export function Failure({ error, retry }: { error: Error; retry?: () => void }) {
  const causes = error instanceof APIError ? error.causes.filter((cause) => cause.message && !error.message.includes(cause.message)) : [];
  return (
    <div class="notice bad" role="alert">
      <Mark tone="bad" />
      <div>
        <p>{error.message}</p>
        {causes.length > 0 && (
          <ul>
            {causes.map((cause) => (
              <li>
                {cause.field && <code>{cause.field}</code>} {cause.message}
              </li>
            ))}
          </ul>
        )}
      </div>
      {retry && (
        <button type="button" onClick={retry}>
          Retry
        </button>
      )}
    </div>
  );
}

export interface Loaded<T> {
  data: T | undefined;
  error: Error | undefined;
  reload: () => void;
}

/** Loads a path. While it loads again, the previous answer stays. */
export function useLoad<T>(path: string): Loaded<T> {
  const [state, setState] = useState<{ path: string; data?: T; error?: Error }>({ path });
  const load = useRef(() => {});
  const reload = useCallback(() => load.current(), []);
  useEffect(() => {
    if (!path) return;
    const stop = new AbortController();
    load.current = oneAtATime(() =>
      get<T>(path, stop.signal).then(
        (data) => setState({ path, data }),
        (error: Error) => {
          if (!stop.signal.aborted) setState((before) => ({ ...(before.path === path ? before : {}), path, error }));
        },
      ),
    );
    load.current();
    return () => stop.abort();
  }, [path]);
  const current = state.path === path;
  return { data: current ? state.data : undefined, error: current ? state.error : undefined, reload };
}

/** Calls a function when the value changes, at most once in the interval. */
export function useOnChange(value: unknown, interval: number, call: () => void): void {
  const last = useRef(value);
  const at = useRef(0);
  useEffect(() => {
    if (last.current === value) return;
    last.current = value;
    const wait = Math.max(0, at.current + interval - performance.now());
    const timer = setTimeout(() => {
      at.current = performance.now();
      call();
    }, wait);
    return () => clearTimeout(timer);
  }, [value]);
}

export function Loading() {
  return (
    <p class="empty loading" role="status">
      Loading …
    </p>
  );
}

export function DiffLines({ lines }: { lines: Line[] }) {
  return (
    <pre class="diff" tabIndex={0} role="group" aria-label="Changed lines">
      {lines.map((line) => (
        <span class={line.sign === "-" ? "removed" : line.sign === "+" ? "added" : "same"}>
          {line.sign} {line.text}
          {"\n"}
        </span>
      ))}
    </pre>
  );
}

export function Dialog({ title, wide, close, children }: { title: string; wide?: boolean; close: () => void; children: ComponentChildren }) {
  const ref = useRef<HTMLDialogElement>(null);
  // Before the paint, so that keys typed after the click that opens it reach the dialog.
  useLayoutEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    ref.current?.showModal();
    return () => before?.isConnected && before.focus();
  }, []);
  return (
    <dialog ref={ref} class={wide ? "wide" : ""} aria-labelledby="dialog-title" onClose={close}>
      <header>
        <h2 id="dialog-title">{title}</h2>
        <button type="button" class="quiet icon" aria-label="Close" onClick={() => ref.current?.close()}>
          <Mark tone="gone" />
        </button>
      </header>
      {children}
    </dialog>
  );
}

/** The kinds that the user may not list, and a form for one namespace. */
export function Refusals({ refusals }: { refusals: KindError[] }) {
  if (refusals.length === 0) return null;
  return (
    <div class="notice wait" role="status">
      <Mark tone="wait" />
      <div>
        {refusals.map((refusal) => (
          <p key={refusal.kind}>
            <b>{refusal.kind}</b>: {refusal.message}
          </p>
        ))}
        {!scope.value && (
          <form
            class="inline"
            onSubmit={(event) => {
              event.preventDefault();
              scope.value = (event.currentTarget.elements.namedItem("namespace") as HTMLInputElement).value.trim();
            }}
          >
            <label>
              Your rights may cover one namespace: <input name="namespace" required placeholder="namespace" autoComplete="off" />
            </label>
            <button>Show it</button>
          </form>
        )}
      </div>
    </div>
  );
}

/** Buttons of which one is chosen. */
export function Choice({ label, value, options, choose }: { label: string; value: string; options: [value: string, text: string][]; choose: (value: string) => void }) {
  return (
    <div class="choice" role="group" aria-label={label}>
      {options.map(([option, text]) => (
        <button type="button" aria-pressed={option === value} onClick={() => choose(option)}>
          {text}
        </button>
      ))}
    </div>
  );
}

/** A bar of parts. The numbers beside it say the same as text. */
export function Bar({ parts }: { parts: [tone: string, value: number][] }) {
  return (
    <span class="bar" aria-hidden="true">
      {parts.map(([tone, value]) => value > 0 && <span class={tone} style={{ flexGrow: value }} />)}
    </span>
  );
}
