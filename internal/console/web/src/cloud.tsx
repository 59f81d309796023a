// What the fake cloud holds.
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import type { Tone } from "./fleet.ts";
import { count } from "./text.ts";
import type { Cloud } from "./types.ts";
import { Age, Empty, Failure, Loading, State, useLoad } from "./ui.tsx";

type Column<T> = [heading: string, cell: (item: T) => ComponentChildren];

const last = (id = "") => id.split("/").pop() ?? "";
const short = (id = "") => id.replace(/^\/subscriptions\/[^/]+\/resourceGroups\//i, "").replace(/providers\/Microsoft\./gi, "");
const most = 100;

function Table<T>({ heading, items = [], columns }: { heading: string; items: T[] | undefined; columns: Column<T>[] }) {
  return (
    <section aria-label={heading}>
      <h2>
        {heading} <span class="muted">{count(items.length)}</span>
      </h2>
      {items.length === 0 ? (
        <Empty>None.</Empty>
      ) : (
        <div class="scroll" tabIndex={0} role="group" aria-label={`Table of ${heading}`}>
          <table class="cloud">
            <thead>
              <tr>
                {columns.map(([name]) => (
                  <th key={name}>{name}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {items.slice(0, most).map((item, i) => (
                <tr key={i}>
                  {columns.map(([name, cell]) => (
                    <td key={name}>{cell(item)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {items.length > most && <p class="muted">The newest {count(most)} are shown.</p>}
    </section>
  );
}

const stateTones: Record<string, Tone> = { Succeeded: "good", Failed: "bad", Deleting: "gone" };

const accounts: Column<NonNullable<Cloud["accounts"]>[number]>[] = [
  ["Name", (account) => <b>{account.name}</b>],
  ["Resource group", (account) => account.group],
  ["State", ({ provisioningState: state = "" }) => <State tone={stateTones[state] ?? "wait"}>{state}</State>],
  ["Identity", (account) => <code>{account.identity?.principalId}</code>],
  ["Encrypted with", ({ key }) => (key === "Microsoft.Storage" ? <State tone="wait">platform keys</State> : <code>{key}</code>)],
  ["Data", ({ data = "" }) => <State tone={data === "available" ? "good" : data === "not yet" ? "wait" : "bad"}>{data}</State>],
];

const grants: Column<NonNullable<Cloud["grants"]>[number]>[] = [
  ["On", (grant) => <b>{last(grant.scope)}</b>],
  ["Role", (grant) => grant.role],
  ["Principal", (grant) => <code>{grant.principalId}</code>],
  ["Of", (grant) => last(grant.account)],
  ["State", (grant) => (grant.orphan ? <State tone="bad">orphan</State> : grant.effective ? <State tone="good">effective</State> : <State tone="wait">propagating</State>)],
];

const vaults: Column<NonNullable<Cloud["vaults"]>[number]>[] = [
  ["Name", (vault) => <b>{vault.name}</b>],
  ["Resource group", (vault) => vault.group],
  ["Access", (vault) => (vault.rbac ? "roles" : "access policies")],
  ["Purge protection", (vault) => (vault.purgeProtection ? <State tone="good">on</State> : <State tone="bad">off</State>)],
  ["State", (vault) => (vault.deletedAt ? <State tone="gone">deleted</State> : vault.disabled ? <State tone="bad">disabled</State> : <State tone="good">available</State>)],
];

const keys: Column<NonNullable<Cloud["keys"]>[number]>[] = [
  ["Name", (key) => <b>{key.name}</b>],
  ["Vault", (key) => key.vault],
  ["Type", (key) => `${key.kty ?? ""} ${key.keySize || ""}`],
  ["Newest version", (key) => <code>{key.versions?.at(-1)?.id}</code>],
  ["State", (key) => (key.deletedAt ? <State tone="gone">deleted</State> : key.versions?.at(-1)?.enabled ? <State tone="good">enabled</State> : <State tone="bad">disabled</State>)],
];

const operations: Column<NonNullable<Cloud["operations"]>[number]>[] = [
  ["Started", (operation) => <Age time={operation.startedAt} suffix=" ago" />],
  ["What", (operation) => operation.kind],
  ["Resource", (operation) => last(operation.resource)],
  ["State", (operation) => <State tone="wait">{operation.status}</State>],
];

const ledger: Column<NonNullable<Cloud["ledger"]>[number]>[] = [
  ["When", (entry) => <Age time={entry.time} suffix=" ago" />],
  ["By", (entry) => entry.by],
  ["Call", (entry) => <code>{entry.method}</code>],
  ["Resource", (entry) => <code>{short(entry.path)}</code>],
  ["Answer", ({ status }) => (status ? <State tone={status < 400 ? "good" : "bad"}>{status}</State> : "")],
  ["Effect", (entry) => entry.effect],
  ["Detail", (entry) => [entry.code, entry.detail].filter(Boolean).join(": ")],
];

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
          <Table heading="Storage accounts" items={data.accounts} columns={accounts} />
          <Table heading="Grants" items={data.grants} columns={grants} />
          <Table heading="Key vaults" items={data.vaults} columns={vaults} />
          <Table heading="Keys" items={data.keys} columns={keys} />
          <Table heading="Operations in progress" items={data.operations?.filter((operation) => operation.status === "InProgress")} columns={operations} />
          <Table heading="Ledger" items={data.ledger} columns={ledger} />
        </>
      )}
    </main>
  );
}
