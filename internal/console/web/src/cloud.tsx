// What the fake cloud holds.
import { useEffect } from "preact/hooks";
import { title } from "./text.ts";
import type { Cloud } from "./types.ts";
import { Age, Empty, Failure, Loading, useLoad } from "./ui.tsx";

type Item = Record<string, unknown>;

function text(value: unknown): string {
  if (value === null || value === undefined || value === "") return "";
  if (Array.isArray(value)) return value.map(text).join(", ");
  if (typeof value === "object")
    return Object.entries(value)
      .filter(([, inner]) => inner !== "" && inner !== null)
      .map(([name, inner]) => `${name}: ${text(inner)}`)
      .join("; ");
  return String(value);
}

const isTime = (value: unknown): value is string => typeof value === "string" && /^\d{4}-\d\d-\d\dT/.test(value);

/** Columns in the order in which the items have them; those without any value are left out. */
function columnsOf(items: Item[]): string[] {
  const names = new Set<string>();
  for (const item of items) for (const [name, value] of Object.entries(item)) if (text(value) !== "") names.add(name);
  const first = ["time", "name", "method", "path", "status", "by"].filter((name) => names.delete(name));
  return [...first, ...names];
}

function Cell({ name, value }: { name: string; value: unknown }) {
  if (isTime(value)) return <Age time={value} suffix=" ago" />;
  if (name === "name") return <b>{text(value)}</b>;
  if (name === "status" && typeof value === "number") return <span class={value >= 400 ? "bad" : "good"}>{value}</span>;
  return <>{text(value)}</>;
}

function Table({ heading, items, most = 100 }: { heading: string; items: Item[]; most?: number }) {
  const columns = columnsOf(items);
  return (
    <section aria-label={heading}>
      <h2>
        {heading} <span class="muted">{items.length}</span>
      </h2>
      {items.length === 0 ? (
        <Empty>None.</Empty>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label={heading}>
          <table class="cloud">
            <thead>
              <tr>
                {columns.map((name) => (
                  <th key={name}>{title(name)}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {items.slice(0, most).map((item, i) => (
                <tr key={i}>
                  {columns.map((name) => (
                    <td key={name} class={name === "path" || name === "method" ? "mono" : ""}>
                      <Cell name={name} value={item[name]} />
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

export function CloudView() {
  const { data, error, reload } = useLoad<Cloud>("/cloud");
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && reload(), 3000);
    return () => clearInterval(timer);
  }, []);
  return (
    <main id="main" class="cloud-view" tabIndex={-1}>
      <div class="section-head">
        <h1>Cloud</h1>
        <p class="muted">What the fake cloud holds, and the requests that it answered</p>
      </div>
      {error && <Failure error={error} retry={reload} />}
      {!data && !error && <Loading />}
      {data && (
        <>
          <Table heading="Storage accounts" items={data.accounts ?? []} />
          <Table heading="Key vaults" items={data.vaults ?? []} />
          <Table heading="Keys" items={data.keys ?? []} />
          <Table heading="Ledger" items={data.ledger ?? []} />
        </>
      )}
    </main>
  );
}
