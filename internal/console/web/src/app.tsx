// The frame around the views.
import { effect } from "@preact/signals";
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { APIError, get, openSession, session, signIn, signOut } from "./api.ts";
import { CloudView } from "./cloud.tsx";
import { DriftsView } from "./drifts.tsx";
import { FleetView } from "./list.tsx";
import { toneOf } from "./fleet.ts";
import { KindsView } from "./kinds.tsx";
import { ObjectView } from "./object.tsx";
import { kindOf } from "./route.ts";
import { dismiss, frame, route, say, theme, toasts, type Theme } from "./state.ts";
import { connection, failure, rows, start } from "./store.ts";
import type { Session } from "./types.ts";
import { Choice, Dialog, Failure, Loading, Mark } from "./ui.tsx";
import "./fonts.css";
import "./style.css";
import icon from "./icon.svg";

function View() {
  const { path } = route.value;
  const [first = "fleet", namespace, name] = path;
  if (first === "fleet") return <FleetView />;
  if (first === "drifts") return <DriftsView />;
  if (first === "cloud") return <CloudView />;
  if (first === "kinds") return <KindsView />;
  if (kindOf(first) && namespace && name) return <ObjectView key={path.join("/")} resource={first} namespace={namespace} name={name} />;
  return (
    <main id="main" tabIndex={-1}>
      <h1>Nothing is at this address</h1>
      <p class="empty">
        <a href="#/fleet">Show the fleet</a>
      </p>
    </main>
  );
}

const connections = { connecting: "Connecting", live: "Live", broken: "Reconnecting", paused: "Paused" };

function Connection() {
  const state = connection.value;
  return (
    <span class={`connection ${state}`} role="status" title={failure.value ? `Updates are interrupted: ${failure.value}` : ""}>
      <i aria-hidden="true" />
      <span>{connections[state]}</span>
    </span>
  );
}

function Header({ help }: { help: () => void }) {
  const [menu, setMenu] = useState(false);
  const current = route.value.path[0] ?? "fleet";
  const who = session.value!;
  const links: [string, string][] = [["fleet", "Fleet"], ["drifts", "Drifts"], ...(who.cloud ? ([["cloud", "Cloud"]] as [string, string][]) : []), ["kinds", "Kinds"]];
  return (
    <header class="top">
      <a class="brand" href="#/fleet" aria-label="Fixpoint, fleet">
        <img src={icon} alt="" width="24" height="24" />
        <span>Fixpoint</span>
      </a>
      <nav aria-label="Views">
        {links.map(([path, text]) => (
          <a href={`#/${path}`} aria-current={current === path || (path === "fleet" && kindOf(current)) ? "page" : undefined}>
            {text}
          </a>
        ))}
      </nav>
      <span class="space" />
      <Connection />
      <button type="button" class="quiet cluster" aria-expanded={menu} aria-controls="menu" onClick={() => setMenu(!menu)}>
        <span>{who.cluster}</span>
        <span class="muted">{who.user}</span>
      </button>
      {menu && <Menu close={() => setMenu(false)} help={help} />}
    </header>
  );
}

function Menu({ close, help }: { close: () => void; help: () => void }) {
  const ref = useRef<HTMLDivElement>(null);
  const who = session.value!;
  useEffect(() => {
    const outside = (event: Event) => {
      const target = event.target as Element;
      if (!ref.current?.contains(target) && !target.closest(".cluster")) close();
    };
    const escape = (event: KeyboardEvent) => {
      if (event.key !== "Escape") return;
      close();
      document.querySelector<HTMLElement>(".cluster")?.focus();
    };
    addEventListener("pointerdown", outside);
    addEventListener("keydown", escape);
    return () => {
      removeEventListener("pointerdown", outside);
      removeEventListener("keydown", escape);
    };
  }, []);
  return (
    <div class="menu" id="menu" ref={ref}>
      <dl>
        <dt>User</dt>
        <dd>{who.user}</dd>
        {who.groups && who.groups.length > 0 && (
          <>
            <dt>Groups</dt>
            <dd>{who.groups.join(", ")}</dd>
          </>
        )}
        <dt>Cluster</dt>
        <dd>{who.cluster}</dd>
        <dt>Console</dt>
        <dd>{who.console}</dd>
      </dl>
      <Choice
        label="Theme"
        value={theme.value}
        options={[["", "System"], ["light", "Light"], ["dark", "Dark"]]}
        choose={(value) => (theme.value = value as Theme)}
      />
      <button type="button" onClick={() => (close(), help())}>
        Keyboard shortcuts
      </button>
      <a class="button" href="/assets/LICENSES.txt" target="_blank" rel="noopener">
        Licenses
      </a>
      {who.mode === "token" && (
        <button type="button" onClick={() => signOut().catch((error: Error) => say(error.message, true))}>
          Sign out
        </button>
      )}
    </div>
  );
}

function SignIn() {
  const [error, setError] = useState<Error>();
  const [busy, setBusy] = useState(false);
  const [refusal, setRefusal] = useState<Error>();
  useEffect(() => {
    // The credential may have been renewed since it was refused.
    get<Session>("/session").then((found) => (session.value = found), setRefusal);
  }, []);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.target as HTMLFormElement;
    const field = form.elements.namedItem("token") as HTMLInputElement;
    setBusy(true);
    try {
      await signIn(field.value.trim());
    } catch (problem) {
      setError(problem instanceof APIError && problem.code === 401 ? new Error("The cluster does not accept this token. It may have expired.") : (problem as Error));
      field.value = "";
      field.focus();
    }
    setBusy(false);
  };
  // The remedy names /session where tokens are accepted. Elsewhere the URL of the console, or its proxy, signs in.
  if (!refusal) return <Loading />;
  const hint = refusal.message;
  if (!hint.includes("/session")) {
    return (
      <main id="main" class="sign-in">
        <img src={icon} alt="" width="48" height="48" />
        <h1>Fixpoint</h1>
        <p>{hint.charAt(0).toUpperCase() + hint.slice(1)}.</p>
      </main>
    );
  }
  return (
    <main id="main" class="sign-in">
      <form onSubmit={submit}>
        <img src={icon} alt="" width="48" height="48" />
        <h1>Fixpoint</h1>
        <p>Sign in with a bearer token of the cluster. The console acts with your rights, and has none of its own.</p>
        <label for="token">Token</label>
        <input id="token" name="token" type="password" required autoComplete="off" spellcheck={false} autofocus aria-describedby="token-help" />
        {error && <Failure error={error} />}
        <button class="primary" disabled={busy}>
          {busy ? "Signing in …" : "Sign in"}
        </button>
        <p class="muted" id="token-help">
          A token of a ServiceAccount: <code>kubectl create token NAME</code>. The console keeps the token in its memory until you sign out, for at most 12 hours.
        </p>
      </form>
    </main>
  );
}

function Toasts() {
  return (
    <div class="toasts" role="status">
      {toasts.value.map((toast) => (
        <div key={toast.id} class={toast.bad ? "toast bad" : "toast"}>
          <Mark tone={toast.bad ? "bad" : "good"} />
          <span>{toast.text}</span>
          <button type="button" class="quiet icon" aria-label="Dismiss" onClick={() => dismiss(toast.id)}>
            <Mark tone="gone" />
          </button>
        </div>
      ))}
    </div>
  );
}

const shortcuts: [string, string][] = [
  ["/", "Search"],
  ["↑ ↓", "Move through the list"],
  ["Page Up, Page Down, Home, End", "Move farther"],
  ["Enter", "Open the object, or collapse the group"],
  ["Esc", "Close a dialog, clear the search"],
  ["?", "This help"],
];

function Help({ close }: { close: () => void }) {
  return (
    <Dialog title="Keyboard shortcuts" close={close}>
      <dl class="shortcuts">
        {shortcuts.map(([keys, what]) => (
          <>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{what}</dd>
          </>
        ))}
      </dl>
    </Dialog>
  );
}

function App() {
  const [error, setError] = useState<Error>();
  const [help, setHelp] = useState(false);
  const open = () => {
    setError(undefined);
    openSession().catch(setError);
  };
  useEffect(() => {
    open();
    const keys = (event: KeyboardEvent) => {
      const typing = (event.target as Element).closest("input, textarea, select, dialog");
      if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "?") setHelp(true);
      const search = event.key === "/" && document.querySelector<HTMLInputElement>("input[type=search]");
      if (search) {
        event.preventDefault();
        search.focus();
        search.select();
      }
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
  if (error) {
    return (
      <main class="sign-in">
        <Failure error={error} retry={open} />
      </main>
    );
  }
  if (session.value === undefined) return <Loading />;
  if (session.value === null) return <SignIn />;
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>
        Skip to content
      </a>
      <Header help={() => setHelp(true)} />
      <View />
      <Toasts />
      {help && <Help close={() => setHelp(false)} />}
    </>
  );
}

effect(() => {
  void frame.value;
  const { path } = route.value;
  let waiting = 0;
  for (const row of rows.values()) if (toneOf(row) === "bad" || toneOf(row) === "wait") waiting++;
  const view = path[2] ?? path[0] ?? "fleet";
  document.title = `${waiting > 0 ? `(${waiting}) ` : ""}${view.charAt(0).toUpperCase()}${view.slice(1)} – Fixpoint`;
});

start();
render(<App />, document.getElementById("app")!);
