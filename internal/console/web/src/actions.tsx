// Dialogs for what changes an object. Each shows what would happen before it happens.
import { dump, load } from "js-yaml";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { request } from "./api.ts";
import { diff, hunks } from "./diff.ts";
import { PlanList } from "./object.tsx";
import { say } from "./state.ts";
import type { Goes, KubeObject, Plan, Row } from "./types.ts";
import { Dialog, DiffLines, Empty, Failure, Loading, Mark, Ref } from "./ui.tsx";

const yaml = (value: unknown) => dump(value, { lineWidth: -1, noRefs: true });

export function Suspend({ row, path, close }: { row: Row; path: string; close: () => void }) {
  const [error, setError] = useState<Error>();
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const reason = (event.currentTarget as HTMLFormElement).elements.namedItem("reason") as HTMLInputElement;
    try {
      await request("POST", `${path}/suspend`, { reason: reason.value.trim() });
      say(`${row.name} is suspended`);
      close();
    } catch (problem) {
      setError(problem as Error);
    }
  };
  return (
    <Dialog title={`Suspend ${row.name}?`} close={close}>
      <form onSubmit={submit}>
        <p>While it is suspended, the manager corrects no drift and applies no change of the spec. What runs keeps running.</p>
        <label for="reason">Reason, for others who find it suspended</label>
        <input id="reason" name="reason" autoComplete="off" maxLength={256} autofocus />
        {error && <Failure error={error} />}
        <footer>
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button class="primary">Suspend</button>
        </footer>
      </form>
    </Dialog>
  );
}

export function Delete({ row, path, close }: { row: Row; path: string; close: () => void }) {
  const [goes, setGoes] = useState<Goes[]>();
  const [error, setError] = useState<Error>();
  const [typed, setTyped] = useState("");
  // The row can become that of an object of the same name, or of another spec, while this one is shown.
  const [shown] = useState(`${path}?uid=${row.uid}&generation=${row.generation}`);
  const confirm = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => confirm.current?.focus(), [goes]);
  useEffect(() => {
    request<{ goes?: Goes[] }>("DELETE", `${shown}&dryRun=All`).then((answer) => setGoes(answer.goes ?? []), setError);
  }, []);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    try {
      await request("DELETE", shown);
      say(`${row.name} is being deleted`);
      close();
    } catch (problem) {
      setError(problem as Error);
    }
  };
  return (
    <Dialog title={`Delete ${row.name}?`} close={close}>
      <form onSubmit={submit}>
        {!goes && !error && <Loading />}
        {goes && (
          <>
            <p>{goes.length > 0 ? "This is deleted with it, or left behind:" : "Nothing else is deleted with it."}</p>
            <ul class="goes">
              {goes.map((object) => (
                <li key={`${object.kind} ${object.namespace} ${object.name}`}>
                  <Mark tone="gone" /> <Ref object={object} within={row.namespace} />
                  {object.message && <span class="muted"> {object.message}</span>}
                </li>
              ))}
            </ul>
          </>
        )}
        {error && <Failure error={error} />}
        {goes && (
          <>
            <label for="confirm">
              Enter <b>{row.name}</b> to confirm
            </label>
            <input id="confirm" ref={confirm} autoComplete="off" spellcheck={false} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
          </>
        )}
        <footer>
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button class="danger solid" disabled={!goes || typed !== row.name}>
            Delete
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

interface Review {
  object: KubeObject;
  after: KubeObject;
  plan: Plan;
}

function Changes({ before, review }: { before: KubeObject; review: Review }) {
  const lines = (object: KubeObject) => yaml(object.spec ?? {}).trimEnd().split("\n");
  const parts = hunks(diff(lines(before), lines(review.after)));
  const left = hunks(diff(lines(review.after), lines(review.object)));
  return (
    <div class="review">
      <h3>Changes of the spec</h3>
      {parts.length === 0 && <Empty>The spec stays as it is.</Empty>}
      {parts.map((part, i) => (
        <DiffLines key={i} lines={part} />
      ))}
      {left.length > 0 && (
        <p class="notice wait">
          <Mark tone="wait" />
          <span>The result differs from what you entered: defaults are added, and a field that you removed stays as long as another field manager owns it.</span>
        </p>
      )}
      <h3>What the manager would then do</h3>
      <PlanList plan={review.plan} />
    </div>
  );
}

export function Edit({ object, path, close }: { object: KubeObject; path: string; close: () => void }) {
  const { name, namespace } = object.metadata;
  const [before] = useState(object);
  const [text, setText] = useState(() => yaml({ apiVersion: object.apiVersion, kind: object.kind, metadata: { name, namespace }, spec: object.spec ?? {} }));
  const [review, setReview] = useState<Review>();
  const [error, setError] = useState<Error>();
  const [busy, setBusy] = useState(false);

  const attempt = async (work: () => Promise<void>) => {
    setBusy(true);
    setError(undefined);
    try {
      await work();
    } catch (problem) {
      setError(problem as Error);
    }
    setBusy(false);
  };
  const check = () =>
    attempt(async () => {
      const typed = load(text) as KubeObject;
      if (typeof typed !== "object" || typed === null || typeof typed.spec !== "object") throw new Error("The text must be an object with a spec.");
      // The server refuses the edit if the spec has changed since the dialog was opened, or if the object is another one.
      const { generation, uid } = before.metadata;
      const edited = { ...typed, metadata: { ...typed.metadata, generation, uid } };
      const [after, plan] = await Promise.all([request<KubeObject>("PUT", `${path}?dryRun=All`, edited), request<Plan>("POST", `${path}/plan`, edited)]);
      setReview({ object: edited, after, plan });
    });
  const apply = () =>
    attempt(async () => {
      await request("PUT", path, review!.object);
      say(`Applied the spec of ${name}`);
      close();
    });
  return (
    <Dialog title={review ? `Apply to ${name}?` : `Edit ${name}`} wide close={close}>
      {review ? (
        <Changes before={before} review={review} />
      ) : (
        <>
          <p class="muted">The spec is applied with Server-Side Apply, as field manager fixpoint-console, after you have seen what changes.</p>
          <textarea class="editor" aria-label="Object as YAML" spellcheck={false} autofocus value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </>
      )}
      {error && <Failure error={error} />}
      <footer>
        <button type="button" onClick={() => (review ? (setReview(undefined), setError(undefined)) : close())}>
          {review ? "Back" : "Cancel"}
        </button>
        {review ? (
          <button type="button" class="primary" disabled={busy} onClick={apply}>
            {busy ? "Applying …" : "Apply"}
          </button>
        ) : (
          <button type="button" class="primary" disabled={busy} onClick={check}>
            {busy ? "Checking …" : "Review changes"}
          </button>
        )}
      </footer>
    </Dialog>
  );
}
