// The fields of a CustomResourceDefinition, readable.
import type { Schema } from "./types.ts";

export interface Field {
  name: string;
  path: string;
  type: string;
  required: boolean;
  description: string;
  /** Limits of the value: "1 to 65535", "one of Correct, Report". */
  limits: string[];
  default: string;
  rules: string[];
  children: Field[];
}

export function typeOf(schema: Schema): string {
  if (schema["x-kubernetes-int-or-string"]) return "integer or string";
  if (schema.type === "array") return `list of ${schema.items ? plural(typeOf(schema.items)) : "values"}`;
  if (schema.type === "object" && typeof schema.additionalProperties === "object") return `map of ${plural(typeOf(schema.additionalProperties))}`;
  if (schema.type === "string" && schema.format === "date-time") return "time";
  return schema.type ?? "any value";
}

function plural(type: string): string {
  return type === "any value" ? "values" : type.replace(/^(\w+)/, "$1s");
}

function limitsOf(schema: Schema): string[] {
  const limits: string[] = [];
  const range = (from: number | undefined, to: number | undefined, unit: string) => {
    if (from !== undefined && to !== undefined) limits.push(from === to ? `exactly ${from}${unit}` : `${from} to ${to}${unit}`);
    else if (from !== undefined) limits.push(`at least ${from}${unit}`);
    else if (to !== undefined) limits.push(`at most ${to}${unit}`);
  };
  if (schema.enum) limits.push(`one of ${schema.enum.map(String).join(", ")}`);
  range(schema.minimum, schema.maximum, "");
  range(schema.minLength, schema.maxLength, " characters");
  range(schema.minItems, schema.maxItems, " items");
  if (schema.pattern) limits.push(`matches ${schema.pattern}`);
  return limits;
}

/** The fields of a schema in the order of their names, the required ones first. */
export function fields(schema: Schema, prefix: string): Field[] {
  const required = new Set(schema.required);
  return Object.entries(schema.properties ?? {})
    .map(([name, part]): Field => {
      const path = prefix ? `${prefix}.${name}` : name;
      const inner = part.items ?? (typeof part.additionalProperties === "object" ? part.additionalProperties : part);
      const suffix = part.items ? "[]" : inner === part ? "" : ".*";
      return {
        name,
        path,
        type: typeOf(part),
        required: required.has(name),
        description: part.description ?? "",
        limits: [...limitsOf(part), ...(inner === part ? [] : limitsOf(inner).map((limit) => `each ${limit}`))],
        default: part.default === undefined ? "" : JSON.stringify(part.default),
        rules: (part["x-kubernetes-validations"] ?? []).map((rule) => rule.message ?? rule.rule),
        children: fields(inner, path + suffix),
      };
    })
    .sort((a, b) => Number(b.required) - Number(a.required) || (a.name < b.name ? -1 : 1));
}

/** The fields whose path or description contains the text, with the fields that lead to them. */
export function search(all: Field[], text: string): Field[] {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return all;
  return all.flatMap((field) => {
    if (field.path.toLowerCase().includes(wanted) || field.description.toLowerCase().includes(wanted)) return [field];
    const children = search(field.children, text);
    return children.length > 0 ? [{ ...field, children }] : [];
  });
}
