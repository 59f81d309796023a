import assert from "node:assert/strict";
import { test } from "node:test";
import { oneAtATime, request, session } from "./api.ts";
import { diff, hunks } from "./diff.ts";
import { countTones, everything, group, items, select, sort, stateOf, tally, toneOf, visible } from "./fleet.ts";
import { driftsPath, format, objectHref, parse } from "./route.ts";
import { fields, search, typeOf } from "./schema.ts";
import { read, rows } from "./store.ts";
import { backoff, Parser } from "./stream.ts";
import { age, counted, day, duration, parseTime, title, words } from "./text.ts";
import { timeline } from "./timeline.ts";
import type { Phase, Row } from "./types.ts";

const row = (name: string, changes: Partial<Row> = {}): Row => ({
  kind: "AppService", namespace: "shop", name, uid: name, resourceVersion: "1", generation: 1, observedGeneration: 1, phase: "Running", ready: "True",
  reason: "Ready", message: "", since: "", created: "", deleting: false, suspended: false, drifts: 0, lastDrift: "", ...changes,
});
const names = (rows: Row[]) => rows.map(({ name }) => name);

test("durations have at most two units, and one from ten on", () => {
  const cases: [number, string][] = [[-5, "0s"], [999, "0s"], [59_000, "59s"], [60_000, "1m"], [95_000, "1m35s"], [600_000, "10m"], [5_400_000, "1h30m"], [90_000_000, "1d1h"], [864_000_000 * 3, "30d"]];
  for (const [milliseconds, text] of cases) assert.equal(duration(milliseconds), text);
});

test("times that are absent or zero have no age", () => {
  for (const time of [undefined, "", "0001-01-01T00:00:00Z", "yesterday"]) {
    assert.equal(parseTime(time), undefined);
    assert.equal(age(time, 0), "");
  }
  assert.equal(age("2026-01-01T00:00:00Z", Date.parse("2026-01-01T00:02:00Z")), "2m");
  assert.match(day("2026-01-01T12:00:00Z"), /^2026-01-0[12]$/);
});

test("names become words", () => {
  for (const [name, text] of [["RolloutProgressing", "Rollout progressing"], ["MCPServer", "MCP server"], ["Ready", "Ready"], ["", ""]] as const) assert.equal(words(name), text);
  for (const [name, text] of [["url", "URL"], ["readyReplicas", "Ready replicas"], ["accountID", "Account ID"], ["keyURI", "Key URI"]] as const) assert.equal(title(name), text);
  assert.equal(counted(1, "drift"), "1 drift");
  assert.equal(counted(2, "drift"), "2 drifts");
});

test("what is not ready comes first", () => {
  const rows = [row("good"), row("suspended", { suspended: true }), row("waiting", { ready: "False", phase: "Provisioning" }), row("failed", { ready: "False", phase: "Failed" }), row("going", { deleting: true, ready: "False" }), row("also-good")];
  assert.deepEqual(names(sort([...rows])), ["failed", "waiting", "going", "suspended", "also-good", "good"]);
  assert.deepEqual(countTones(rows), { bad: 1, wait: 1, gone: 1, hold: 1, good: 2 });
  assert.equal(toneOf(row("degraded", { phase: "Degraded", ready: "True" })), "bad");
  assert.equal(stateOf(row("new", { phase: "" })), "Pending");
});

test("drifts are those of the namespace that is watched, because a user may list no other", () => {
  assert.equal(driftsPath(7, "shop"), "/drifts?since=168h&namespace=shop");
  assert.equal(driftsPath(1, ""), "/drifts?since=24h");
});

test("filters combine, and each word of a search counts", () => {
  const rows = [row("web"), row("api", { namespace: "pay", message: "image not found" }), row("mail", { kind: "MCPServer" })];
  assert.deepEqual(names(select(rows, everything)), ["web", "api", "mail"]);
  assert.deepEqual(names(select(rows, { ...everything, search: "PAY found" })), ["api"]);
  assert.deepEqual(names(select(rows, { ...everything, search: "pay web" })), []);
  assert.deepEqual(names(select(rows, { ...everything, kind: "MCPServer" })), ["mail"]);
  assert.deepEqual(names(select(rows, { ...everything, namespace: "pay", state: "Running" })), ["api"]);
});

test("groups with what is not ready come first, and collapse", () => {
  const rows = sort([row("a", { namespace: "one" }), row("b", { namespace: "two", ready: "False", phase: "Failed" }), row("c", { namespace: "one" })]);
  const groups = group(rows, "namespace");
  assert.deepEqual(groups.map(({ name }) => name), ["two", "one"]);
  assert.deepEqual(items(groups, true, new Set(["one"])).map((item) => item.row?.name ?? `[${item.group?.name}]`), ["[two]", "b", "[one]"]);
  assert.deepEqual(items(group(rows, ""), false, new Set()).length, 3);
  assert.deepEqual(tally(rows, (r) => r.namespace), [["one", 2], ["two", 1]]);
});

test("only lines in view are shown", () => {
  assert.deepEqual(visible(10_000, 40, 0, 800), [0, 28]);
  assert.deepEqual(visible(10_000, 40, 4000, 800), [92, 128]);
  assert.deepEqual(visible(5, 40, 4000, 800), [5, 5]);
});

test("a stream is parsed wherever it is cut", () => {
  const text = ": hello\n\nid: 1\nevent: SYNC\ndata: {\ndata: }\n\nid: 2\r\nevent: DELETED\r\ndata:{}\r\n\r\nevent: unfinished\ndata: 1\n";
  const expected = [{ id: "1", event: "SYNC", data: "{\n}" }, { id: "2", event: "DELETED", data: "{}" }];
  for (let at = 0; at <= text.length; at++) {
    const parser = new Parser();
    assert.deepEqual([...parser.feed(text.slice(0, at)), ...parser.feed(text.slice(at))], expected, `cut at ${at}`);
  }
});

test("a stream that sends nothing, not even comments, has ended", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let body!: ReadableStreamDefaultController<Uint8Array>;
  let error = "";
  const received: string[] = [];
  read(new ReadableStream<Uint8Array>({ start: (controller) => void (body = controller) }), (id) => received.push(id)).catch((problem: Error) => (error = problem.message));
  const settle = () => new Promise(setImmediate);
  for (const text of [`event: SYNC\nid: 1\ndata: {}\n\n`, ": keep-alive\n\n", ": keep-alive\n\n", ": keep-alive\n\n"]) {
    body.enqueue(new TextEncoder().encode(text));
    await settle();
    t.mock.timers.tick(44_000);
    await settle();
    assert.equal(error, "");
  }
  t.mock.timers.tick(1_000);
  await settle();
  assert.equal(error, "the server sends nothing");
  assert.deepEqual(received, ["1"]);
  assert.equal(rows.size, 0);
});

test("a write is sent again with the CSRF token of a renewed credential of the same user", async (t) => {
  const before = { user: "jane", mode: "proxy", csrf: "old", console: "", cluster: "", cloud: false } as const;
  let user = "jane";
  const sent: string[] = [];
  t.mock.method(globalThis, "fetch", async (path: string, init: RequestInit) => {
    const csrf = (init.headers as Record<string, string>)["X-CSRF-Token"] ?? "";
    sent.push(`${init.method} ${path} ${csrf}`);
    if (path === "/session") return Response.json({ ...before, user, csrf: "new" });
    return csrf === "new" ? Response.json({ done: true }) : Response.json({ reason: "CSRFTokenInvalid", message: "not current" }, { status: 403 });
  });
  session.value = before;
  assert.deepEqual(await request("POST", "/x"), { done: true });
  assert.deepEqual(sent, ["POST /x old", "GET /session ", "POST /x new"]);
  user = "eve";
  session.value = before;
  await assert.rejects(request("POST", "/x"), /not current/, "another user has signed in");
});

test("a call that is in progress ends before the next begins", async () => {
  const calls: (() => void)[] = [];
  const load = oneAtATime(() => new Promise((done) => calls.push(done)));
  const finish = async (call: number) => {
    calls[call]!();
    await new Promise(setImmediate);
  };
  load();
  load();
  load();
  assert.equal(calls.length, 1);
  await finish(0);
  assert.equal(calls.length, 2, "once for all that came meanwhile");
  await finish(1);
  assert.equal(calls.length, 2);
  load();
  assert.equal(calls.length, 3);
});

test("attempts wait longer and longer, up to a limit", () => {
  assert.equal(backoff(0, 1), 250);
  assert.equal(backoff(3, 0), 1000);
  assert.equal(backoff(1000, 1), 15_000);
});

test("a diff has the fewest lines, and hunks those near a change", () => {
  const before = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
  const after = ["a", "B", "c", "d", "e", "f", "g", "h", "i", "j", "k"];
  const text = (lines: { sign: string; text: string }[]) => lines.map(({ sign, text }) => sign + text).join(" ");
  const parts = hunks(diff(before, after));
  assert.deepEqual(parts.map(text), [" a -b +B  c  d  e", " h  i  j +k"]);
  assert.deepEqual(hunks(diff(before, before)), []);
  assert.equal(text(diff([], ["x"])), "+x");
});

test("phases have durations as far as the conditions tell", () => {
  const phase = (name: string, status: Phase["status"], seconds: number, reason = ""): Phase => ({
    name, condition: `${name}Ready`, status, reason, message: "", gate: "", since: new Date(1_000_000 + seconds * 1000).toISOString(),
  });
  const created = new Date(1_000_000).toISOString();
  const steps = timeline([phase("Config", "True", 1), phase("Service", "True", 4), phase("Deployment", "False", 4, "Failed"), phase("Ingress", "Unknown", 4)], created, "Failed", 1_014_000);
  assert.deepEqual(steps.map(({ state, took }) => [state, took]), [["done", 1000], ["done", 3000], ["stalled", undefined], ["blocked", undefined]]);
  assert.deepEqual(steps[2]?.bar, { from: 4 / 14, to: 1 });
  const again = timeline([phase("Config", "True", 9), phase("Service", "True", 4)], created, "", 1_014_000);
  assert.equal(again[1]?.took, undefined, "ready before its predecessor");
  const absent: Phase = { ...phase("Dependencies", "", 0), since: "" };
  const optional = timeline([absent, phase("Config", "True", 1), { ...absent, name: "PreDeploy" }, phase("Deployment", "True", 4)], created, "", 1_014_000);
  assert.deepEqual(optional.map(({ took }) => took), [undefined, 1000, undefined, 3000], "phases that are not configured take no time");
});

test("addresses survive any name", () => {
  for (const name of ["web", `"><img src=x>`, "a/b?c=d#e%", ""]) {
    const { path, params } = parse(format(["fleet", name], { q: name }));
    assert.deepEqual(path, ["fleet", name].filter(Boolean));
    assert.equal(params.get("q") ?? "", name);
  }
  assert.equal(objectHref({ kind: "AppService", namespace: "shop", name: "web" }, { tab: "plan" }), "#/appservices/shop/web?tab=plan");
  assert.deepEqual(parse("#/%E0%A4%A").path, ["%E0%A4%A"]);
});

test("fields are readable", () => {
  const all = fields({ required: ["port"], properties: {
    env: { type: "array", maxItems: 9, items: { type: "object", properties: { name: { type: "string", minLength: 1 } } } },
    port: { type: "integer", minimum: 1, maximum: 65535, default: 80, description: "the port" },
    labels: { type: "object", additionalProperties: { type: "string" } },
    policy: { type: "string", enum: ["Retain", "Delete"], "x-kubernetes-validations": [{ rule: "self == oldSelf", message: "is immutable" }] },
  } }, "spec");
  assert.deepEqual(all.map(({ name, type }) => `${name}: ${type}`), ["port: integer", "env: list of objects", "labels: map of strings", "policy: string"]);
  assert.deepEqual(all[0]?.limits, ["1 to 65535"]);
  assert.deepEqual(all[1]?.children.map(({ path }) => path), ["spec.env[].name"]);
  assert.deepEqual(all[3]?.rules, ["is immutable"]);
  assert.deepEqual(search(all, "env[].NAME").map(({ path }) => path), ["spec.env"]);
  assert.deepEqual(search(all, "the port").map(({ path }) => path), ["spec.port"]);
  assert.equal(typeOf({ "x-kubernetes-int-or-string": true }), "integer or string");
});
