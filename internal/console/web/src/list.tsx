// The fleet: counts, filters, and a list of which only the visible lines are in the page.
import { computed, signal, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { countTones, group, items, select, sort, stateOf, tally, toneOf, tones, visible, type Group, type Grouping, type Item, type Query } from "./fleet.ts";
import { kinds, objectHref } from "./route.ts";
import { frame, route, setParams } from "./state.ts";
import { changed, connection, failure, keyOf, refusals, rows, scope, version } from "./store.ts";
import { count, counted, words } from "./text.ts";
import type { Row } from "./types.ts";
import { Age, Bar, Choice, Empty, Loading, Mark, Refusals, State } from "./ui.tsx";

const query = computed<Query>(() => {
  const { params } = route.value;
  const value = (name: string) => params.get(name) ?? "";
  const by = value("group");
  return {
    search: value("q"),
    kind: value("kind"),
    namespace: value("ns"),
    state: value("state"),
    group: by === "namespace" || by === "phase" || by === "reason" ? by : "",
  };
});

/** Without the filters of the chips, so that they count what they would select. */
const base = computed(() => {
  void frame.value;
  return select(rows.values(), { ...query.value, state: "" });
});
const states = computed(() => tally(base.value, stateOf).sort(([a], [b]) => tones.indexOf(toneOfState(a)) - tones.indexOf(toneOfState(b))));
const totals = computed(() => countTones(base.value));
const namespaces = computed(() => {
  void frame.value;
  return [...new Set([...rows.values()].map((row) => row.namespace))].sort();
});
const groups = computed(() => {
  const { state, group: by } = query.value;
  return group(sort(base.value.filter((row) => !state || stateOf(row) === state)), by);
});
const collapsed = signal<ReadonlySet<string>>(new Set());
const lines = computed(() => items(groups.value, query.value.group !== "", collapsed.value));
const shown = computed(() => groups.value.reduce((sum, group) => sum + group.rows.length, 0));

function toggle(name: string): void {
  const next = new Set(collapsed.value);
  if (!next.delete(name)) next.add(name);
  collapsed.value = next;
}

const keyOfItem = (item: Item) => (item.row ? keyOf(item.row) : `group ${item.group.name}`);

const toneOfState = (state: string) => toneOf({ phase: state, ready: state === "Running" || state === "Ready" ? "True" : "False", deleting: state === "Deleting", suspended: state === "Suspended" });

function Filters() {
  const { kind, namespace, state, group: by, search } = query.value;
  return (
    <div class="filters">
      <input
        type="search"
        value={search}
        placeholder="Search names, reasons, messages"
        aria-label="Search"
        onInput={(event) => setParams({ q: event.currentTarget.value })}
        onKeyDown={(event) => event.key === "Escape" && setParams({ q: "" })}
      />
      <Choice label="Kind" value={kind} options={[["", "All kinds"], ...kinds.map((name): [string, string] => [name, name])]} choose={(value) => setParams({ kind: value })} />
      <label class="field">
        <span>Namespace</span>
        <select value={namespace} onChange={(event) => setParams({ ns: event.currentTarget.value })}>
          <option value="">All</option>
          {[...new Set([...namespaces.value, ...(namespace ? [namespace] : [])])].map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <label class="field">
        <span>Group by</span>
        <select value={by} onChange={(event) => setParams({ group: event.currentTarget.value as Grouping })}>
          <option value="">Nothing</option>
          <option value="namespace">Namespace</option>
          <option value="phase">Phase</option>
          <option value="reason">Reason</option>
        </select>
      </label>
      {(kind || namespace || state || search) && (
        <button type="button" class="quiet" onClick={() => setParams({ kind: "", ns: "", state: "", q: "" })}>
          Clear filters
        </button>
      )}
    </div>
  );
}

function Summary() {
  const chosen = query.value.state;
  const { bad, wait, gone, hold, good } = totals.value;
  return (
    <section class="summary" aria-label="Summary">
      <p class="headline">
        <strong>{count(base.value.length)}</strong> {base.value.length === 1 ? "object" : "objects"}
        {bad + wait > 0 ? (
          <span class={bad > 0 ? "bad" : "wait"}>
            {" "}
            <strong>{count(bad + wait)}</strong> not ready
          </span>
        ) : (
          base.value.length > 0 && <span class="good"> all ready</span>
        )}
      </p>
      <Bar parts={[["bad", bad], ["wait", wait], ["gone", gone], ["hold", hold], ["good", good]]} />
      <div class="chips" role="group" aria-label="Phase">
        {states.value.map(([state, n]) => (
          <button key={state} type="button" class={`chip ${toneOfState(state)}`} aria-pressed={state === chosen} onClick={() => setParams({ state: state === chosen ? "" : state })}>
            <Mark tone={toneOfState(state)} /> {state} <b>{count(n)}</b>
          </button>
        ))}
      </div>
    </section>
  );
}

function RowLine({ row, index, active }: { row: Row; index: number; active: boolean }) {
  const key = keyOf(row);
  const tone = toneOf(row);
  const at = changed.get(key);
  return (
    <div class={`line ${tone}`} role="row" aria-rowindex={index + 2}>
      {at !== undefined && performance.now() - at < 1500 && <i class="flash" key={row.resourceVersion} aria-hidden="true" />}
      <div role="gridcell" class="c-state">
        <State tone={tone}>{stateOf(row)}</State>
      </div>
      <div role="gridcell" class="c-name">
        <a href={objectHref(row)} data-key={key} tabIndex={active ? 0 : -1}>
          <span class="namespace">{row.namespace}/</span>
          <wbr />
          <span>{row.name}</span>
        </a>
      </div>
      <div role="gridcell" class="c-kind">
        {row.kind}
      </div>
      <div role="gridcell" class="c-reason" title={row.reason}>
        {row.ready === "True" && row.reason === "Ready" ? "" : words(row.reason)}
      </div>
      <div role="gridcell" class="c-message" title={row.message}>
        {row.ready === "True" ? "" : row.message}
      </div>
      <div role="gridcell" class="c-drifts">
        {row.drifts > 0 && (
          <a href={objectHref(row, { tab: "drifts" })} tabIndex={-1}>
            {counted(row.drifts, "drift")}
          </a>
        )}
      </div>
      <div role="gridcell" class="c-age">
        <Age time={row.since || row.created} />
      </div>
    </div>
  );
}

function GroupLine({ group, index, active }: { group: Group; index: number; active: boolean }) {
  const { bad, wait, gone, hold, good } = group.tones;
  const open = !collapsed.value.has(group.name);
  return (
    <div class="line heading" role="row" aria-rowindex={index + 2}>
      <div role="gridcell" aria-colspan={7}>
        <button type="button" class="quiet" aria-expanded={open} data-key={`group ${group.name}`} tabIndex={active ? 0 : -1} onClick={() => toggle(group.name)}>
          <span class="arrow" aria-hidden="true" />
          <span class="group-name">{query.value.group === "reason" ? words(group.name) : group.name}</span>
          <span class="muted">{count(group.rows.length)}</span>
          {bad + wait > 0 && <span class={bad > 0 ? "bad" : "wait"}>{count(bad + wait)} not ready</span>}
          <Bar parts={[["bad", bad], ["wait", wait], ["gone", gone], ["hold", hold], ["good", good]]} />
        </button>
      </div>
    </div>
  );
}

/** The key of the line whose link or button an event is for. */
const keyOfElement = (event: Event) => (event.target as HTMLElement).dataset["key"] ?? "";

function List() {
  const view = useRef<HTMLDivElement>(null);
  const probe = useRef<HTMLDivElement>(null);
  const scrolled = useSignal(0);
  const size = useSignal({ height: 36, view: 800 });
  const active = useSignal("");
  const wanted = useRef("");
  const all = lines.value;
  const { height } = size.value;
  const [from, to] = visible(all.length, height, scrolled.value, size.value.view);

  useLayoutEffect(() => {
    const measure = () => (size.value = { height: probe.current!.offsetHeight || 36, view: view.current!.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(view.current!);
    observer.observe(probe.current!);
    measure();
    return () => observer.disconnect();
  }, []);
  const { search, kind, namespace, state, group: by } = query.value;
  useEffect(() => {
    view.current!.scrollTop = 0;
  }, [search, kind, namespace, state, by]);
  /** Focuses the wanted line, now or once it is in the page. */
  const focusWanted = () => {
    if (!wanted.current) return;
    const target = view.current!.querySelector<HTMLElement>(`[data-key="${CSS.escape(wanted.current)}"]`);
    if (!target) return;
    wanted.current = "";
    target.focus({ preventScroll: true });
  };
  useLayoutEffect(focusWanted);

  const focusable = useMemo(() => {
    const keys = all.slice(from, to).map(keyOfItem);
    return keys.includes(active.value) ? active.value : (keys[Math.min(keys.length - 1, Math.max(0, Math.ceil(scrolled.value / height) - from))] ?? "");
  }, [all, from, to, active.value]);

  const move = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor(size.value.view / height) - 2);
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    const all = lines.peek();
    if (step === undefined || all.length === 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const focused = wanted.current || keyOfElement(event);
    const current = all.findIndex((item) => keyOfItem(item) === focused);
    const next = Math.max(0, Math.min(all.length - 1, current < 0 ? from : current + step));
    const box = view.current!;
    const top = next * height;
    if (top < box.scrollTop + height) box.scrollTop = Math.max(0, top - height);
    else if (top + 2 * height > box.scrollTop + box.clientHeight) box.scrollTop = top + 2 * height - box.clientHeight;
    scrolled.value = box.scrollTop;
    wanted.current = keyOfItem(all[next]!);
    focusWanted();
  };

  return (
    <div class="list" role="grid" aria-label="Objects" aria-rowcount={all.length + 1} aria-colcount={7} aria-busy={connection.value === "connecting"} onKeyDown={move} onFocusIn={(event) => (active.value = keyOfElement(event))}>
      <div role="rowgroup" class="list-head">
        <div class="line head" role="row" aria-rowindex={1}>
          {[["state", "Phase"], ["name", "Name"], ["kind", "Kind"], ["reason", "Reason"], ["message", "Message"], ["drifts", "Drifts"], ["age", "Since"]].map(([name, text]) => (
            <div key={name} role="columnheader" class={`c-${name}`}>
              {text}
            </div>
          ))}
        </div>
      </div>
      <div role="rowgroup" class="list-view" ref={view} onScroll={(event) => (scrolled.value = event.currentTarget.scrollTop)}>
        <div class="probe" role="presentation" ref={probe} />
        <div class="list-all" role="presentation" style={{ height: `${all.length * height}px` }}>
          <div class="list-window" role="presentation" style={{ transform: `translateY(${from * height}px)` }}>
            {all.slice(from, to).map((item, i) => {
              const key = keyOfItem(item);
              const line = { index: from + i, active: key === focusable };
              return item.row ? <RowLine key={key} row={item.row} {...line} /> : <GroupLine key={key} group={item.group} {...line} />;
            })}
          </div>
        </div>
      </div>
    </div>
  );
}

function Nothing() {
  if (version.value === 0) return connection.value === "broken" ? <Empty>Waiting for the server: {failure.value}</Empty> : <Loading />;
  if (rows.size > 0) return <Empty>No object matches the filters.</Empty>;
  if (refusals.value.length > 0) return null;
  return (
    <div class="empty first">
      <h2>There are no objects yet</h2>
      <p>
        Create one with <code>kubectl apply -f config/samples</code>, and it appears here.
      </p>
      <p>
        <a href="#/kinds">See what the kinds offer</a>
      </p>
    </div>
  );
}

export function FleetView() {
  return (
    <main id="main" class="fleet" tabIndex={-1}>
      <h1 class="hidden">Fleet</h1>
      <Summary />
      <Filters />
      {scope.value && (
        <p class="notice hold">
          <Mark tone="hold" />
          <span>
            Only the namespace <b>{scope.value}</b> is watched.
          </span>
          <button type="button" onClick={() => (scope.value = "")}>
            Watch all
          </button>
        </p>
      )}
      <Refusals refusals={refusals.value} />
      <p class="hidden" role="status">
        {query.value.search && `${counted(shown.value, "object")} found`}
      </p>
      {lines.value.length > 0 ? <List /> : <Nothing />}
    </main>
  );
}
