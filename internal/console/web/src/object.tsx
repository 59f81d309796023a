// One object: its phases, children, conditions, Events, drifts, plan and YAML, and what can be done with it.
import { useEffect, useState } from "preact/hooks";
import { request } from "./api.ts";
import { Delete, Edit, Suspend } from "./actions.tsx";
import { DriftTable } from "./drifts.tsx";
import { stateOf, toneOf } from "./fleet.ts";
import { format, kindOf, objectPath } from "./route.ts";
import { frame, now, route, say } from "./state.ts";
import { keyOf, rows } from "./store.ts";
import { absolute, counted, duration, parseTime, title, words } from "./text.ts";
import { timeline, type PhaseState, type Step } from "./timeline.ts";
import type { Action, BlameLine, Condition, Contract, Details, KubeEvent, Plan, Row, TreeNode } from "./types.ts";
import { Age, DiffLines, Empty, Failure, Loading, Mark, readyTone, Ref, State, useLoad, useOnChange } from "./ui.tsx";

const tabs: [id: string, text: string][] = [["", "Overview"], ["events", "Events"], ["drifts", "Drifts"], ["contract", "Contract"], ["plan", "Plan"], ["yaml", "YAML"]];

const phaseTones = { done: "good", waiting: "wait", stalled: "bad", blocked: "none", unknown: "none" } as const;
const phaseWords: Record<PhaseState, string> = { done: "Done", waiting: "Waiting", stalled: "Stalled", blocked: "Blocked", unknown: "Not reached" };

function PhaseStep({ step, index, within, reported }: { step: Step; index: number; within: string; reported: boolean }) {
  const { phase, state, since, took, bar } = step;
  const tone = phaseTones[state];
  return (
    <li class={`step ${tone}`}>
      <span class="step-mark">
        <Mark tone={tone} />
      </span>
      <div class="step-body">
        <div class="step-head">
          <h3>
            <span class="step-number">{index + 1}</span> {words(phase.name)}
          </h3>
          <span class="step-state">
            {state === "unknown" && reported ? "Not configured" : phaseWords[state]}
            {phase.reason && state !== "done" && phase.reason !== phaseWords[state] && <span class="muted"> · {words(phase.reason)}</span>}
          </span>
          <span class="step-time" title={absolute(phase.since)}>
            {took !== undefined && <span>took {took < 1000 ? "under 1s" : duration(took)}</span>}
            {since !== undefined && <span class="muted">{state === "done" ? `${duration(now.value - since)} ago` : `for ${duration(now.value - since)}`}</span>}
          </span>
        </div>
        {bar && (
          <span class="step-bar" aria-hidden="true">
            <span class={tone} style={{ left: `min(${bar.from * 100}%, 100% - 4px)`, width: `${Math.max(0, bar.to - bar.from) * 100}%` }} />
          </span>
        )}
        {phase.message && <p class={state === "done" ? "muted" : ""}>{phase.message}</p>}
        {phase.gate && state !== "done" && <p class="gate">{phase.gate}</p>}
        {phase.children && phase.children.length > 0 && (
          <ul class="step-children">
            {phase.children.map((child) => (
              <li key={keyOf(child)} title={child.message}>
                <Mark tone={readyTone(child.ready)} /> <Ref object={child} within={within} />
                {child.ready !== "True" && child.message && <span class="muted"> {child.message}</span>}
              </li>
            ))}
          </ul>
        )}
      </div>
    </li>
  );
}

function Phases({ details, row }: { details: Details; row: Row }) {
  const stalled = details.object.status?.conditions?.find((condition) => condition.type === "Stalled" && condition.status === "True");
  const steps = timeline(details.phases ?? [], row.created, stalled?.reason ?? "", now.value);
  return (
    <section aria-labelledby="phases">
      <h2 id="phases">Phases</h2>
      {steps.length === 0 ? (
        <Empty>The manager has not reported a phase yet.</Empty>
      ) : (
        <ol class="steps">
          {steps.map((step, i) => (
            <PhaseStep key={step.phase.name} step={step} index={i} within={row.namespace} reported={steps.some(({ state }) => state !== "unknown")} />
          ))}
        </ol>
      )}
    </section>
  );
}

function Branch({ node, within }: { node: TreeNode; within: string }) {
  const [open, setOpen] = useState(true);
  const children = node.children ?? [];
  return (
    <li>
      <div class="node">
        {children.length > 0 ? (
          <button type="button" class="quiet arrow" aria-expanded={open} aria-label={`Children of ${node.kind} ${node.name}`} onClick={() => setOpen(!open)} />
        ) : (
          <span class="arrow none" />
        )}
        <Mark tone={readyTone(node.ready)} />
        <span class="node-name">
          <Ref object={node} within={within} />
        </span>
        {node.ready === "Missing" && <span class="bad">missing</span>}
        {node.managers && node.managers.length > 0 && (
          <span class="managers">
            <span class="hidden">Field managers: </span>
            {node.managers.map((manager) => (
              <span key={manager} class="tag">
                {manager}
              </span>
            ))}
          </span>
        )}
        {node.message && node.ready !== "True" && <span class="node-message muted">{node.message}</span>}
      </div>
      {open && children.length > 0 && (
        <ul>
          {children.map((child) => (
            <Branch key={keyOf(child)} node={child} within={within} />
          ))}
        </ul>
      )}
    </li>
  );
}

function Conditions({ conditions }: { conditions: Condition[] }) {
  return (
    <section aria-labelledby="conditions">
      <h2 id="conditions">Conditions</h2>
      <div class="scroll" tabIndex={0} role="group" aria-labelledby="conditions">
        <table>
          <thead>
            <tr>
              <th>Type</th>
              <th>Status</th>
              <th>Reason</th>
              <th class="fill">Message</th>
              <th>Since</th>
            </tr>
          </thead>
          <tbody>
            {conditions.map((condition) => (
              <tr key={condition.type}>
                <td>{condition.type}</td>
                <td>
                  <State tone={conditionTone(condition)}>{condition.status}</State>
                </td>
                <td>{condition.reason}</td>
                <td class="fill">{condition.message}</td>
                <td class="number">
                  <Age time={condition.lastTransitionTime} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

/** Conditions whose name ends in Ready are good if they are True; all others tell of something to know. */
function conditionTone({ type, status }: Condition) {
  if (status === "Unknown") return "none";
  if (type.endsWith("Ready")) return status === "True" ? "good" : "wait";
  if (type === "Stalled" && status === "True") return "bad";
  return type === "Suspended" ? "hold" : "wait";
}

function Overview({ details, row }: { details: Details; row: Row }) {
  return (
    <div class="overview">
      <Phases details={details} row={row} />
      <section aria-labelledby="tree">
        <h2 id="tree">Objects</h2>
        {details.tree ? (
          <ul class="tree">
            <Branch node={details.tree} within={row.namespace} />
          </ul>
        ) : (
          <Empty>No object was created yet.</Empty>
        )}
      </section>
      <Conditions conditions={details.object.status?.conditions ?? []} />
    </div>
  );
}

function Events({ row }: { row: Row }) {
  const { data, error, reload } = useLoad<{ items?: KubeEvent[] }>(`/events?${new URLSearchParams({ kind: row.kind, namespace: row.namespace, name: row.name, limit: "100" })}`);
  useOnChange(row.resourceVersion, 500, reload);
  if (error && !data) return <Failure error={error} retry={reload} />;
  if (!data) return <Loading />;
  if (!data.items?.length) return <Empty>There are no recent Events.</Empty>;
  return (
    <ol class="feed">
      {data.items.map((event) => (
        <li key={`${event.reason} ${event.last} ${event.message}`} class={event.type === "Warning" ? "wait" : ""}>
          <Mark tone={event.type === "Warning" ? "wait" : "good"} />
          <div>
            <p>
              <b>{words(event.reason)}</b>
              {event.type === "Warning" && <span class="hidden"> (warning)</span>}
              {event.count > 1 && <span class="muted"> {event.count} times</span>}
            </p>
            <p>{event.message}</p>
          </div>
          <span class="muted feed-side">
            <Age time={event.last} suffix=" ago" />
            <span>{event.component}</span>
          </span>
        </li>
      ))}
    </ol>
  );
}

const verbs = { create: "Create", update: "Update", delete: "Delete", step: "Do", none: "" };
const verbTones = { create: "good", update: "wait", delete: "bad", step: "wait", none: "none" } as const;

export function PlanList({ plan }: { plan: Plan }) {
  const actions = plan.actions ?? [];
  return (
    <>
      {actions.length === 0 ? (
        <p class="notice good">
          <Mark tone="good" />
          <span>Nothing to do: everything is as declared.</span>
        </p>
      ) : (
        <ol class="plan">
          {actions.map((action) => (
            <PlanAction key={`${action.phase} ${action.verb} ${keyOf(action)} ${action.message}`} action={action} />
          ))}
        </ol>
      )}
      {plan.notes && plan.notes.length > 0 && (
        <ul class="notes">
          {plan.notes.map((note) => (
            <li key={note}>{note}</li>
          ))}
        </ul>
      )}
    </>
  );
}

function PlanAction({ action }: { action: Action }) {
  return (
    <li>
      <p>
        <Mark tone={verbTones[action.verb]} /> <b>{verbs[action.verb]}</b> {action.kind && <Ref object={action} />} <span class="muted">{action.phase && `phase ${words(action.phase)}`}</span>
      </p>
      {action.message && <p>{action.message}</p>}
      {action.diff && action.diff.length > 0 && (
        <DiffLines
          lines={action.diff.map((text) => {
            const sign = text.startsWith("-") ? "-" : text.startsWith("+") ? "+" : " ";
            return { sign, text: (sign === " " ? text : text.slice(1)).replace(sign === " " ? /^ {1,2}/ : /^ /, "") };
          })}
        />
      )}
    </li>
  );
}

function PlanTab({ path, row }: { path: string; row: Row }) {
  const { data, error, reload } = useLoad<Plan>(`${path}/plan`);
  useOnChange(row.resourceVersion, 1000, reload);
  return (
    <section aria-labelledby="plan">
      <div class="section-head">
        <h2 id="plan">What the manager would do now</h2>
        <button type="button" onClick={reload}>
          Plan again
        </button>
      </div>
      {error && <Failure error={error} retry={reload} />}
      {data ? <PlanList plan={data} /> : !error && <Loading />}
    </section>
  );
}

/** What an MCPServer offers. Its text is that of the server, and is not trusted: it is only ever shown as text. */
function ContractTab({ path, row }: { path: string; row: Row }) {
  const { data, error, reload } = useLoad<Contract>(`${path}/contract`);
  useOnChange(row.resourceVersion, 1000, reload);
  if (error && !data) return <Failure error={error} retry={reload} />;
  if (!data) return <Loading />;
  return (
    <>
      {data.pending && (
        <section aria-labelledby="pending">
          <h2 id="pending">Waiting for approval</h2>
          <p>
            <Mark tone="wait" /> Pods offer the contract <code>{data.pending}</code>, and take no traffic until it is approved:
          </p>
          {data.changes && data.changes.length > 0 && (
            <ul class="notes">
              {data.changes.map((change) => (
                <li key={change}>{change}</li>
              ))}
            </ul>
          )}
          <p>
            <code>{data.approve}</code>
          </p>
        </section>
      )}
      {data.diff && (
        <section aria-labelledby="contract-diff">
          <h2 id="contract-diff">{data.pending && data.to === data.pending ? "What would change" : "What has changed"}</h2>
          <p class="muted">
            From <code>{data.from}</code> to <code>{data.to}</code>
            {data.lastChange && data.to === data.digest && (
              <>
                , <Age time={data.lastChange.time} suffix=" ago" />
              </>
            )}
          </p>
          {data.diff.map((item) => (
            <div key={`${item.kind}/${item.name}`}>
              <h3>
                {words(item.kind)} {item.name}: {item.change}
              </h3>
              <DiffLines lines={(item.lines ?? []).map((line) => ({ sign: line[0] === "+" || line[0] === "-" ? line[0] : " ", text: line === "@@" ? "…" : line.slice(1) }))} />
            </div>
          ))}
        </section>
      )}
      <section aria-labelledby="contract">
        <h2 id="contract">Tools, prompts and resource templates</h2>
        {data.note && <p class="muted">{data.note}</p>}
        {data.digest && (
          <p class="muted">
            Contract <code>{data.digest}</code>
          </p>
        )}
        {data.digest && data.items.length === 0 && <Empty>The server offers none.</Empty>}
        {data.items.map((item, i) => (
          <details key={`${item.kind}/${item.name}/${i}`}>
            <summary>
              {words(item.kind)} <b>{item.name}</b> <code class="muted">{item.digest}</code>
            </summary>
            {item.lines ? <DiffLines lines={item.lines.map((text) => ({ sign: " ", text }))} /> : <p class="muted">The definition is not stored.</p>}
          </details>
        ))}
        {data.omitted ? <p class="muted">Not listed: {data.omitted} more.</p> : null}
      </section>
    </>
  );
}

function Blame({ path, row }: { path: string; row: Row }) {
  const { data, error, reload } = useLoad<{ lines?: BlameLine[] }>(`${path}/blame`);
  const [lit, setLit] = useState("");
  useOnChange(row.resourceVersion, 1000, reload);
  if (error && !data) return <Failure error={error} retry={reload} />;
  if (!data) return <Loading />;
  const lines = data.lines ?? [];
  const managers = [...new Set(lines.map((line) => line.manager).filter(Boolean))];
  const copy = () =>
    navigator.clipboard.writeText(lines.map((line) => line.text).join("\n") + "\n").then(
      () => say("Copied the YAML"),
      () => say("The browser does not allow copying", true),
    );
  return (
    <section aria-labelledby="yaml">
      <div class="section-head">
        <h2 id="yaml">YAML with field managers</h2>
        <button type="button" onClick={copy}>
          Copy
        </button>
      </div>
      <div class="managers legend" role="group" aria-label="Highlight the fields of">
        {managers.map((manager, i) => (
          <button key={manager} type="button" class={`tag m${i % 6}`} aria-pressed={lit === manager} onClick={() => setLit(lit === manager ? "" : manager)}>
            {manager}
          </button>
        ))}
      </div>
      <div class="scroll blame" tabIndex={0} role="group" aria-labelledby="yaml">
        <table>
          <thead class="hidden">
            <tr>
              <th>Field manager</th>
              <th>Since</th>
              <th>Line</th>
            </tr>
          </thead>
          <tbody>
            {lines.map((line, i) => {
              const first = line.manager !== lines[i - 1]?.manager;
              return (
                <tr key={i} class={`${line.manager ? `m${managers.indexOf(line.manager) % 6}` : ""}${lit && lit !== line.manager ? " dim" : ""}`}>
                  <td>{first ? line.manager : line.manager && <span class="hidden">{line.manager}</span>}</td>
                  <td class="number">{first && line.time && <Age time={line.time} />}</td>
                  <td class="fill">
                    <code>{line.text || " "}</code>
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Actions({ details, row, path, reload }: { details: Details; row: Row; path: string; reload: () => void }) {
  const [dialog, setDialog] = useState("");
  const [busy, setBusy] = useState("");
  const post = async (verb: string, done: string) => {
    setBusy(verb);
    try {
      await request("POST", `${path}/${verb}`, {});
      say(done);
      reload();
    } catch (error) {
      say((error as Error).message, true);
    }
    setBusy("");
  };
  const close = () => (setDialog(""), reload());
  return (
    <div class="actions">
      {row.suspended ? (
        <button type="button" class="primary" disabled={busy !== ""} onClick={() => post("resume", `${row.name} is resumed`)}>
          Resume
        </button>
      ) : (
        <>
          <button type="button" disabled={busy !== "" || row.deleting} onClick={() => post("reconcile", `Requested a reconcile of ${row.name}`)}>
            Reconcile
          </button>
          <button type="button" disabled={row.deleting} onClick={() => setDialog("suspend")}>
            Suspend
          </button>
        </>
      )}
      <button type="button" disabled={row.deleting} onClick={() => setDialog("edit")}>
        Edit
      </button>
      <button type="button" class="danger" disabled={row.deleting} onClick={() => setDialog("delete")}>
        Delete
      </button>
      {dialog === "suspend" && <Suspend row={row} path={path} close={close} />}
      {dialog === "edit" && <Edit object={details.object} path={path} close={close} />}
      {dialog === "delete" && <Delete row={row} path={path} close={close} />}
    </div>
  );
}

/** What people look for first, from the status of each kind. */
function Facts({ details, row }: { details: Details; row: Row }) {
  const status = details.object.status ?? {};
  const facts: [string, preact.ComponentChildren][] = [["Age", <Age time={row.created} />]];
  if (row.generation > 0) {
    const current = row.observedGeneration >= row.generation;
    facts.push(["Generation", current ? String(row.generation) : <span class="wait">{`${row.generation}, observed ${row.observedGeneration}`}</span>]);
  }
  for (const [name, value] of Object.entries(status)) {
    if (name === "observedGeneration" || name === "phase") continue;
    if (typeof value === "string" || typeof value === "number" || typeof value === "boolean") {
      facts.push([title(name), String(value)]);
    }
  }
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Heading({ details, row, path, reload }: { details: Details | undefined; row: Row; path: string; reload: () => void }) {
  const tone = toneOf(row);
  const since = parseTime(row.since);
  return (
    <header class={`object-head ${tone}`}>
      <p class="crumbs">
        <a href={format(["fleet"], { kind: row.kind })}>{row.kind}</a>
        <span aria-hidden="true"> / </span>
        <a href={format(["fleet"], { ns: row.namespace })}>{row.namespace}</a>
      </p>
      <div class="object-title">
        <h1>{row.name}</h1>
        <p class="object-state">
          <State tone={tone}>{stateOf(row)}</State>
          {since !== undefined && <span class="muted"> for {duration(now.value - since)}</span>}
        </p>
        {details && <Actions details={details} row={row} path={path} reload={reload} />}
      </div>
      {(details?.why || row.message) && <p class="why">{details?.why || row.message}</p>}
      {details && <Facts details={details} row={row} />}
    </header>
  );
}

export function ObjectView({ resource, namespace, name }: { resource: string; namespace: string; name: string }) {
  const path = objectPath(resource, namespace, name);
  const { data, error, reload } = useLoad<Details>(path);
  void frame.value;
  const live = rows.get(keyOf({ kind: kindOf(resource), namespace, name }));
  const row = live ?? data?.row;
  useOnChange(live?.resourceVersion, 200, reload);
  useEffect(() => {
    // Pods change without a change of the object.
    const timer = setInterval(() => document.visibilityState === "visible" && reload(), 5000);
    return () => clearInterval(timer);
  }, []);
  const tab = route.value.params.get("tab") ?? "";
  if (!row || (error && !live)) {
    return (
      <main id="main" class="object" tabIndex={-1}>
        <h1>{name}</h1>
        {error ? <Failure error={error} retry={reload} /> : <Loading />}
        <p>
          <a href="#/fleet">Show the fleet</a>
        </p>
      </main>
    );
  }
  return (
    <main id="main" class="object" tabIndex={-1}>
      <Heading details={data} row={row} path={path} reload={reload} />
      {error && <Failure error={error} retry={reload} />}
      {data?.notes && data.notes.length > 0 && (
        <p class="notice hold">
          <Mark tone="hold" />
          <span>Not shown: {data.notes.join("; ")}.</span>
        </p>
      )}
      <nav class="tabs" aria-label="Parts of the object">
        {tabs.filter(([id]) => id !== "contract" || row.kind === "MCPServer").map(([id, text]) => (
          <a key={id} href={format([resource, namespace, name], { tab: id })} aria-current={id === tab ? "page" : undefined}>
            {text}
            {id === "drifts" && row.drifts > 0 && (
              <>
                {" "}
                <b>{row.drifts}</b>
                <span class="hidden"> {counted(row.drifts, "drift")}</span>
              </>
            )}
          </a>
        ))}
      </nav>
      {tab === "" && (data ? <Overview details={data} row={row} /> : <Loading />)}
      {tab === "events" && <Events row={row} />}
      {tab === "drifts" && (data ? <DriftTable drifts={data.drifts ?? []} single /> : <Loading />)}
      {tab === "plan" && <PlanTab path={path} row={row} />}
      {tab === "contract" && <ContractTab path={path} row={row} />}
      {tab === "yaml" && <Blame path={path} row={row} />}
    </main>
  );
}
