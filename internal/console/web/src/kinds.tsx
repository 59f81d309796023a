// The kinds and their fields.
import { useState } from "preact/hooks";
import { format } from "./route.ts";
import { route, setParams } from "./state.ts";
import { fields, search, type Field } from "./schema.ts";
import type { CRD } from "./types.ts";
import { Empty, Failure, Loading, useLoad } from "./ui.tsx";

function FieldItem({ field, depth, open: opened }: { field: Field; depth: number; open: boolean }) {
  const [chosen, setChosen] = useState<boolean>();
  const open = chosen ?? opened;
  const nested = field.children.length > 0;
  return (
    <li class="field-item">
      <div class="field-head">
        {nested ? (
          <button type="button" class="quiet arrow" aria-expanded={open} aria-label={`Fields of ${field.path}`} onClick={() => setChosen(!open)} />
        ) : (
          <span class="arrow none" />
        )}
        <code class="field-name" title={field.path}>
          {field.name}
        </code>
        <span class="muted">{field.type}</span>
        {field.required && <span class="tag required">required</span>}
        {field.default && (
          <span class="muted">
            default <code>{field.default}</code>
          </span>
        )}
      </div>
      <div class="field-body">
        {field.description && <p>{field.description}</p>}
        {field.limits.length > 0 && <p class="limits">{field.limits.join(" · ")}</p>}
        {field.rules.length > 0 && (
          <ul class="rules">
            {field.rules.map((rule) => (
              <li key={rule}>{rule}</li>
            ))}
          </ul>
        )}
      </div>
      {nested && open && (
        <ul class="field-list">
          {field.children.map((child) => (
            <FieldItem key={child.path} field={child} depth={depth + 1} open={opened && depth < 8} />
          ))}
        </ul>
      )}
    </li>
  );
}

function Kind({ crd }: { crd: CRD }) {
  const { params } = route.value;
  const text = params.get("q") ?? "";
  const { names, versions } = crd.spec;
  const served = versions.filter((version) => version.served);
  const version = served.find(({ name }) => name === params.get("version")) ?? served.find(({ storage }) => storage) ?? served[0];
  const schema = version?.schema?.openAPIV3Schema;
  const parts = ["spec", "status"].map((name) => {
    const part = schema?.properties?.[name];
    return { name, description: part?.description ?? "", rules: (part?.["x-kubernetes-validations"] ?? []).map((rule) => rule.message ?? rule.rule), fields: part ? search(fields(part, name), text) : [] };
  });
  return (
    <article>
      <div class="section-head">
        <h2>{names.kind}</h2>
        <p class="muted">
          <code>
            {names.plural}.{crd.spec.group}
          </code>
          {names.shortNames && <> · short: {names.shortNames.join(", ")}</>}
        </p>
      </div>
      {schema?.description && <p class="prose">{schema.description}</p>}
      <div class="filters">
        <input type="search" value={text} placeholder="Search fields" aria-label="Search fields" onInput={(event) => setParams({ q: event.currentTarget.value })} />
        {served.length > 1 && (
          <label class="field">
            <span>Version</span>
            <select value={version?.name} onChange={(event) => setParams({ version: event.currentTarget.value })}>
              {served.map(({ name, deprecated }) => (
                <option key={name} value={name}>
                  {name}
                  {deprecated ? " (deprecated)" : ""}
                </option>
              ))}
            </select>
          </label>
        )}
      </div>
      {version?.deprecated && <p class="notice wait">{version.deprecationWarning ?? `Version ${version.name} is deprecated.`}</p>}
      {parts.map((part) => (
        <section key={part.name} aria-label={part.name}>
          <h3>
            <code>{part.name}</code>
          </h3>
          {part.description && !text && <p class="prose muted">{part.description}</p>}
          {part.rules.length > 0 && !text && (
            <ul class="rules">
              {part.rules.map((rule) => (
                <li key={rule}>{rule}</li>
              ))}
            </ul>
          )}
          {part.fields.length > 0 ? (
            <ul class="field-list">
              {part.fields.map((field) => (
                <FieldItem key={`${field.path} ${text !== ""}`} field={field} depth={0} open={text !== ""} />
              ))}
            </ul>
          ) : (
            <Empty>{text ? "No field matches." : "There are no fields."}</Empty>
          )}
        </section>
      ))}
    </article>
  );
}

export function KindsView() {
  const { data, error, reload } = useLoad<{ items?: CRD[] }>("/crd");
  const chosen = route.value.path[1];
  const all = data?.items ?? [];
  const crd = all.find(({ spec }) => spec.names.plural === chosen) ?? all[0];
  return (
    <main id="main" class="kinds-view" tabIndex={-1}>
      <h1 class="hidden">Kinds</h1>
      {error && <Failure error={error} retry={reload} />}
      {!data && !error && <Loading />}
      {crd && (
        <>
          <nav class="tabs" aria-label="Kinds">
            {all.map(({ spec }) => (
              <a key={spec.names.plural} href={format(["kinds", spec.names.plural])} aria-current={spec === crd.spec ? "page" : undefined}>
                {spec.names.kind}
              </a>
            ))}
          </nav>
          <Kind key={crd.metadata.name} crd={crd} />
        </>
      )}
    </main>
  );
}
