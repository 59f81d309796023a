// Watches the clients of the SDKs. Of each response it compares the body with what the SDK makes of it, both ways: a
// property of the body that the SDK does not read is unknown to it, and the result must be of the type that the SDK
// declares.
import { Types } from "./types.mjs";

export class Inspector {
  #types;
  #bodies = [];
  #wrong = new Set();
  #results = 0;

  constructor(packages) {
    this.#types = new Types(packages);
  }

  /** A client whose requests and results are inspected. */
  async watch(client, name, className) {
    const known = await import(name);
    if (client.sendOperationRequest) this.#watchMappers(client, name);
    else this.#watchContext((client.client ?? client)._client, name);
    return this.#proxy(client, this.#types.client(name, className), { known, path: className });
  }

  report() {
    const counts = {};
    for (const body of this.#bodies) {
      if (!body.read()) continue;
      counts[body.of] = (counts[body.of] ?? 0) + 1;
      for (const path of body.unread()) this.#wrong.add(`${body.title}: ${path}: unknown to ${body.of}`);
    }
    return { bodies: counts, results: this.#results, wrong: [...this.#wrong].sort() };
  }

  // Clients of the first kind have models as data, the mappers.
  #watchMappers(client, name) {
    const send = client.sendOperationRequest.bind(client);
    client.sendOperationRequest = (args, spec) => {
      const onResponse = (raw, flat, error) => {
        if (raw.bodyAsText) this.#bodies.push(new MappedBody(name, raw, spec));
        args.options?.onResponse?.(raw, flat, error);
      };
      return send({ ...args, options: { ...args.options, onResponse } }, spec);
    };
  }

  // Clients of the second kind have models as functions, which read the body.
  #watchContext(context, name) {
    for (const method of ["path", "pathUnchecked"]) {
      const open = context[method].bind(context);
      context[method] = (...args) => {
        const verbs = open(...args);
        return Object.fromEntries(Object.entries(verbs).map(([verb, send]) => [verb, (options) => {
          const answered = () => send(options).then((response) => this.#watched(name, response));
          return { then: (good, bad) => answered().then(good, bad) };
        }]));
      };
    }
  }

  #watched(name, response) {
    if (typeof response.body !== "object" || response.body === null) return response;
    const body = new ReadBody(name, response);
    this.#bodies.push(body);
    return { ...response, body: body.proxy };
  }

  // The proxy checks what the methods of a client, or of one of its groups of operations, return.
  #proxy(target, type, at) {
    return new Proxy(target, {
      get: (object, name) => {
        const value = object[name];
        const declared = typeof name === "string" ? this.#types.property(type, name) : undefined;
        const path = `${at.path}.${String(name)}`;
        if (!declared) return value;
        if (typeof value === "function") {
          return (...args) => this.#returned(value.apply(object, args), this.#types.returned(declared), { ...at, path });
        }
        return typeof value === "object" && declared.getProperties().some((p) => typeof value[p.name] === "function")
          ? this.#proxy(value, declared, { ...at, path })
          : value;
      },
    });
  }

  #returned(value, type, at) {
    if (typeof value?.pollUntilDone === "function") return this.#poller(value, this.#types.argument(type, -1), at);
    if (typeof value?.[Symbol.asyncIterator] === "function") return this.#items(value, this.#types.argument(type, 0), at);
    if (typeof value?.then === "function") return value.then((result) => this.#returned(result, this.#types.argument(type, 0), at));
    this.#results++;
    for (const wrong of this.#types.check(type, value, at.path, at.known)) this.#wrong.add(wrong);
    return value;
  }

  #poller(poller, type, at) {
    return new Proxy(poller, {
      get: (object, name) => {
        const value = object[name];
        if (name === "pollUntilDone") return (...args) => object.pollUntilDone(...args).then((result) => this.#returned(result, type, at));
        return typeof value === "function" ? value.bind(object) : value;
      },
    });
  }

  async *#items(pages, type, at) {
    for await (const item of pages) yield this.#returned(item, type, { ...at, path: `${at.path}[]` });
  }
}

function titleOf(request, status) {
  const { pathname } = new URL(request.url);
  const kind = pathname.split("/").filter((part, i, all) => part && (i % 2 === 1 || /^(keys|deletedkeys)$/.test(all[1]))).slice(-3).join("/");
  return `${request.method} ${kind} ${status}`;
}

/** What pollers read of a response that they do not return. */
const polled = new Set(["properties", "properties.provisioningState", "provisioningState", "status", "error", "id"]);

/** What the status of an operation consists of: only pollers read it, and only a part. */
const operation = new Set(["id", "resourceId", "name", "status", "startTime", "endTime", "percentComplete", "properties", "error", "error.code", "error.message"]);

/** A body that records which of its properties are read. An object of which none is read is kept whole. */
class ReadBody {
  #raw;
  #seen = new Set();
  #entered = new Set();

  constructor(of, { request, status, body }) {
    this.of = of;
    this.title = titleOf(request, status);
    this.#raw = body;
    this.known = request.url.includes("/asyncoperations/") && !request.url.includes("monitor=true") ? operation : new Set();
    this.proxy = this.#watch(body, "");
  }

  #watch(value, path) {
    if (typeof value !== "object" || value === null) return value;
    const pathTo = (key) => (Array.isArray(value) ? `${path}[]` : path ? `${path}.${key}` : key);
    return new Proxy(value, {
      get: (object, key) => {
        if (typeof key === "string") this.#entered.add(path);
        if (typeof key !== "string" || !Object.hasOwn(object, key) || (Array.isArray(object) && key === "length")) return object[key];
        this.#seen.add(pathTo(key));
        return this.#watch(object[key], pathTo(key));
      },
      ownKeys: (object) => {
        this.#entered.add(path);
        for (const key of Object.keys(object)) this.#seen.add(pathTo(key));
        return Reflect.ownKeys(object);
      },
    });
  }

  /** Whether the SDK has read more than a poller does. */
  read() {
    return this.known.size > 0 || [...this.#seen].some((path) => !polled.has(path));
  }

  unread() {
    const unread = new Set();
    this.#walk(this.#raw, "", unread);
    return [...unread];
  }

  #walk(value, path, unread) {
    if (path && !this.#seen.has(path) && !this.known.has(path)) return void unread.add(path);
    if (typeof value !== "object" || value === null || !this.#entered.has(path)) return;
    for (const [key, inner] of Object.entries(value)) {
      this.#walk(inner, Array.isArray(value) ? `${path}[]` : path ? `${path}.${key}` : key, unread);
    }
  }
}

/** A body whose model is a mapper. */
class MappedBody {
  #wrong = [];

  constructor(of, raw, spec) {
    this.of = of;
    this.title = titleOf(raw.request, raw.status);
    const response = spec.responses[raw.status] ?? spec.responses.default;
    this.models = spec.serializer.modelMappers;
    if (response?.bodyMapper) this.#compare(JSON.parse(raw.bodyAsText), response.bodyMapper, "");
    else this.#wrong.push("the whole body");
  }

  #compare(value, mapper, path) {
    const { type } = mapper;
    if (value === null || typeof value !== "object") return;
    if (type.name === "Sequence") for (const item of value) this.#compare(item, type.element, `${path}[]`);
    if (type.name === "Dictionary") for (const item of Object.values(value)) this.#compare(item, type.value, `${path}.*`);
    if (type.name !== "Composite") return;
    const known = new Map();
    for (const property of Object.values(this.#properties(type))) {
      // An empty name stands for the body itself, whose items are a page.
      if (property.serializedName === "") { known.set("", property); continue; }
      this.#place(known, property.serializedName.split("."), property);
    }
    this.#walk(value, known, path);
  }

  #properties(type) {
    return type.modelProperties ?? this.models[type.className].type.modelProperties;
  }

  #place(into, [first, ...rest], property) {
    if (rest.length === 0) return void into.set(first, property);
    if (!(into.get(first) instanceof Map)) into.set(first, new Map());
    this.#place(into.get(first), rest, property);
  }

  #walk(value, known, path) {
    for (const [key, inner] of Object.entries(value)) {
      const at = path ? `${path}.${key}` : key;
      const property = known.get(key);
      if (property === undefined) this.#wrong.push(at);
      else if (property instanceof Map) this.#walk(inner, property, at);
      else this.#compare(inner, property, at);
    }
    for (const [key, property] of known) {
      if (property.required && value[key] === undefined) this.#wrong.push(`${path}.${key} (required, and missing)`);
    }
  }

  read() {
    return true;
  }

  unread() {
    return this.#wrong;
  }
}
