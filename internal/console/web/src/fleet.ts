// The fleet as values: which rows are shown, in which groups and order.
import type { Row } from "./types.ts";

/** What a row's state means for a person. The order is the order of attention. */
export const tones = ["bad", "wait", "gone", "hold", "good"] as const;
export type Tone = (typeof tones)[number];

export function toneOf(row: Pick<Row, "phase" | "ready" | "deleting" | "suspended">): Tone {
  if (row.deleting) return "gone";
  if (row.suspended) return "hold";
  if (row.phase === "Failed" || row.phase === "Degraded") return "bad";
  return row.ready === "True" ? "good" : "wait";
}

/** The phase that is shown: suspension and deletion replace what was seen before them. */
export function stateOf(row: Pick<Row, "phase" | "deleting" | "suspended">): string {
  if (row.deleting) return "Deleting";
  if (row.suspended) return "Suspended";
  return row.phase || "Pending";
}

export type Grouping = "" | "namespace" | "phase" | "reason";

export interface Query {
  search: string;
  kind: string;
  namespace: string;
  state: string;
  group: Grouping;
}

export const everything: Query = { search: "", kind: "", namespace: "", state: "", group: "" };

/** Reports whether a row has all words of the search, in its name, namespace, kind, state, reason or message. */
function found(row: Row, terms: string[]): boolean {
  if (terms.length === 0) return true;
  const text = `${row.namespace}/${row.name} ${row.kind} ${stateOf(row)} ${row.reason} ${row.message}`.toLowerCase();
  return terms.every((term) => text.includes(term));
}

export function select(rows: Iterable<Row>, query: Query): Row[] {
  const terms = query.search.toLowerCase().split(/\s+/).filter(Boolean);
  const selected: Row[] = [];
  for (const row of rows) {
    if (query.kind && row.kind !== query.kind) continue;
    if (query.namespace && row.namespace !== query.namespace) continue;
    if (query.state && stateOf(row) !== query.state) continue;
    if (found(row, terms)) selected.push(row);
  }
  return selected;
}

const compare = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);

/** Sorts what is not ready first, then by namespace, name and kind. */
export function sort(rows: Row[]): Row[] {
  return rows.sort(
    (a, b) =>
      tones.indexOf(toneOf(a)) - tones.indexOf(toneOf(b)) ||
      compare(a.namespace, b.namespace) ||
      compare(a.name, b.name) ||
      compare(a.kind, b.kind),
  );
}

export interface Group {
  name: string;
  rows: Row[];
  tones: Record<Tone, number>;
}

export function countTones(rows: Iterable<Row>): Record<Tone, number> {
  const totals: Record<Tone, number> = { bad: 0, wait: 0, gone: 0, hold: 0, good: 0 };
  for (const row of rows) totals[toneOf(row)]++;
  return totals;
}

/** Groups rows that are sorted. The group with the most urgent row comes first, and of equal ones the first by name. */
export function group(rows: Row[], by: Grouping): Group[] {
  const key = (row: Row) => (by === "namespace" ? row.namespace : by === "phase" ? stateOf(row) : by === "reason" ? row.reason || "None" : "");
  const groups = new Map<string, Row[]>();
  for (const row of rows) {
    const name = key(row);
    const members = groups.get(name);
    if (members) members.push(row);
    else groups.set(name, [row]);
  }
  const urgency = (members: Row[]) => (members[0] ? tones.indexOf(toneOf(members[0])) : tones.length);
  return [...groups]
    .map(([name, members]) => ({ name, rows: members, tones: countTones(members) }))
    .sort((a, b) => urgency(a.rows) - urgency(b.rows) || compare(a.name, b.name));
}

export type Item = { group: Group; row?: undefined } | { row: Row; group?: undefined };

/** The lines of the list: each group's heading, and its rows unless it is collapsed. */
export function items(groups: Group[], grouped: boolean, collapsed: ReadonlySet<string>): Item[] {
  const lines: Item[] = [];
  for (const group of groups) {
    if (grouped) lines.push({ group });
    if (grouped && collapsed.has(group.name)) continue;
    for (const row of group.rows) lines.push({ row });
  }
  return lines;
}

/** How many rows have each value, the most frequent first. */
export function tally<T>(rows: Iterable<T>, key: (row: T) => string): [name: string, count: number][] {
  const totals = new Map<string, number>();
  for (const row of rows) totals.set(key(row), (totals.get(key(row)) ?? 0) + 1);
  return [...totals].sort((a, b) => b[1] - a[1] || compare(a[0], b[0]));
}

/** The lines that are in view, and some above and below them. */
export function visible(length: number, height: number, scrolled: number, view: number): [from: number, to: number] {
  const margin = 8;
  const from = Math.max(0, Math.min(length, Math.floor(scrolled / height) - margin));
  return [from, Math.min(length, Math.ceil((scrolled + view) / height) + margin)];
}
