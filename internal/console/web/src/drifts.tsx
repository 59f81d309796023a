// Who changes what: over one object, and over the fleet by manager, namespace and day.
import { computed } from "@preact/signals";
import { tally } from "./fleet.ts";
import { driftsPath, objectHref } from "./route.ts";
import { frame, now, route, setParams } from "./state.ts";
import { rows, scope } from "./store.ts";
import { count, counted, day } from "./text.ts";
import type { Drift, KindError } from "./types.ts";
import { Age, Choice, Empty, Failure, Loading, Refusals, State, useLoad, useOnChange } from "./ui.tsx";

const most = 500;

export function DriftTable({ drifts, single }: { drifts: Drift[]; single?: boolean }) {
  if (drifts.length === 0) return <Empty>No drift is recorded.</Empty>;
  return (
    <>
      <div class="scroll" tabIndex={0} role="group" aria-label="Drifts">
        <table class="drifts">
          <thead>
            <tr>
              <th>When</th>
              {!single && <th>Object</th>}
              <th>Changed</th>
              <th>Desired</th>
              <th>Found</th>
              <th>By</th>
              <th>Outcome</th>
            </tr>
          </thead>
          <tbody>
            {drifts.slice(0, most).map((drift, i) => (
              <tr key={`${i} ${drift.time} ${drift.field}`}>
                <td class="number">
                  <Age time={drift.time} suffix=" ago" />
                </td>
                {!single && (
                  <td>
                    <a href={objectHref(drift, { tab: "drifts" })}>
                      {drift.namespace}/{drift.name}
                    </a>
                    <span class="muted small"> {drift.kind}</span>
                  </td>
                )}
                <td>
                  {drift.message || (
                    <>
                      {drift.child} <code>{drift.field}</code>
                    </>
                  )}
                </td>
                <td>
                  <code class="value added">{drift.desired || "–"}</code>
                </td>
                <td>
                  <code class="value removed">{drift.found || "–"}</code>
                </td>
                <td>
                  {drift.manager ? <span class="tag">{drift.manager}</span> : "–"}
                </td>
                <td>
                  <State tone={drift.action === "Reported" ? "wait" : "good"}>{drift.action}</State>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {drifts.length > most && <p class="muted">The newest {count(most)} of {count(drifts.length)} are shown.</p>}
    </>
  );
}

function Shares({ title, param, shares, chosen }: { title: string; param: string; shares: [string, number][]; chosen: string }) {
  const largest = shares[0]?.[1] ?? 1;
  return (
    <section class="shares" aria-label={title}>
      <h2>{title}</h2>
      <ul>
        {shares.slice(0, 8).map(([name, n]) => (
          <li key={name}>
            <button type="button" class="quiet" aria-pressed={name === chosen} onClick={() => setParams({ [param]: name === chosen ? "" : name })}>
              <span class="share-name">{name || "(unknown)"}</span>
              <span class="share-bar" aria-hidden="true">
                <span style={{ width: `${(n / largest) * 100}%` }} />
              </span>
              <b>{count(n)}</b>
            </button>
          </li>
        ))}
      </ul>
      {shares.length > 8 && <p class="muted small">and {shares.length - 8} more</p>}
    </section>
  );
}

const dayName = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

function Days({ drifts, days, chosen }: { drifts: Drift[]; days: number; chosen: string }) {
  const totals = new Map(tally(drifts, (drift) => day(drift.time)));
  const all = Array.from({ length: days }, (_, i) => {
    const date = new Date(now.value - (days - 1 - i) * 86_400_000);
    return { name: day(date.toISOString()), text: dayName.format(date) };
  });
  const largest = Math.max(1, ...all.map(({ name }) => totals.get(name) ?? 0));
  return (
    <section class="days" aria-label="By day">
      <h2>By day</h2>
      <ol>
        {all.map(({ name, text }) => {
          const n = totals.get(name) ?? 0;
          return (
            <li key={name}>
              <button type="button" class="quiet" aria-pressed={name === chosen} aria-label={`${text}: ${counted(n, "drift")}`} title={`${text}: ${counted(n, "drift")}`} onClick={() => setParams({ day: name === chosen ? "" : name })}>
                <span class="column" aria-hidden="true">
                  <span style={{ height: `${(n / largest) * 100}%` }} />
                </span>
                <span class="day" aria-hidden="true">{text}</span>
              </button>
            </li>
          );
        })}
      </ol>
    </section>
  );
}

/** Changes whenever an object reports another drift. */
const latest = computed(() => {
  void frame.value;
  let total = 0;
  let last = "";
  for (const row of rows.values()) {
    total += row.drifts;
    if (row.lastDrift > last) last = row.lastDrift;
  }
  return `${total} ${last}`;
});

export function DriftsView() {
  const { params } = route.value;
  const value = (name: string) => params.get(name) ?? "";
  const days = value("days") === "1" || value("days") === "30" ? Number(value("days")) : 7;
  const { data, error, reload } = useLoad<{ items?: Drift[]; errors?: KindError[] }>(driftsPath(days, scope.value));
  useOnChange(latest.value, 1000, reload);
  const all = data?.items ?? [];
  const refusals = data?.errors ?? [];
  const keys: Record<string, (drift: Drift) => string> = { manager: (drift) => drift.manager || "unknown", ns: (drift) => drift.namespace, day: (drift) => day(drift.time) };
  // Each breakdown ignores its own filter, so that the other choices stay visible.
  const matching = (except: string) => all.filter((drift) => Object.entries(keys).every(([name, key]) => name === except || !value(name) || key(drift) === value(name)));
  return (
    <main id="main" class="drifts-view" tabIndex={-1}>
      <div class="section-head">
        <h1>Drifts</h1>
        <p class="muted">What others changed in the objects that the manager applies{scope.value && `, in namespace ${scope.value}`}</p>
        <span class="space" />
        <Choice label="Period" value={String(days)} options={[["1", "24 hours"], ["7", "7 days"], ["30", "30 days"]]} choose={(choice) => setParams({ days: choice, day: "" })} />
      </div>
      {error && <Failure error={error} retry={reload} />}
      {!data && !error && <Loading />}
      {data && (
        <>
          <Refusals refusals={refusals} />
          {all.length > 0 && (
            <div class="panels">
              <Shares title="By field manager" param="manager" chosen={value("manager")} shares={tally(matching("manager"), keys["manager"]!)} />
              <Shares title="By namespace" param="ns" chosen={value("ns")} shares={tally(matching("ns"), keys["ns"]!)} />
              {days > 1 && <Days drifts={matching("day")} days={days} chosen={value("day")} />}
            </div>
          )}
          {(value("manager") || value("ns") || value("day")) && (
            <p>
              {counted(matching("").length, "drift")} of {count(all.length)}{" "}
              <button type="button" class="quiet" onClick={() => setParams({ manager: "", ns: "", day: "" })}>
                Clear filters
              </button>
            </p>
          )}
          {(all.length > 0 || refusals.length === 0) && <DriftTable drifts={matching("")} />}
        </>
      )}
    </main>
  );
}
