// The address of a view: /#/path?parameters.

export interface Route {
  path: string[];
  params: URLSearchParams;
}

export function parse(hash: string): Route {
  const [path = "", params = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { path: path.split("/").filter(Boolean).map(decode), params: new URLSearchParams(params) };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function format(path: string[], params: Record<string, string> = {}): string {
  const set = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== ""));
  return `#/${path.map(encodeURIComponent).join("/")}${set.size > 0 ? `?${set}` : ""}`;
}

const resources: Record<string, string> = { AppService: "appservices", MCPServer: "mcpservers", SecureStorage: "securestorages" };

export const kinds = Object.keys(resources);

export function resourceOf(kind: string): string {
  return resources[kind] ?? "";
}

export function kindOf(resource: string): string {
  return kinds.find((kind) => resources[kind] === resource) ?? "";
}

export function objectHref(object: { kind: string; namespace: string; name: string }, params: Record<string, string> = {}): string {
  return format([resourceOf(object.kind), object.namespace, object.name], params);
}

/** The path of the drifts of some days, of all namespaces if none is given. */
export function driftsPath(days: number, namespace: string): string {
  return `/drifts?${new URLSearchParams({ since: `${days * 24}h`, ...(namespace ? { namespace } : {}) })}`;
}

/** The path of an object in the server's interface. */
export function objectPath(resource: string, namespace: string, name: string): string {
  return `/objects/${[resource, namespace, name].map(encodeURIComponent).join("/")}`;
}
