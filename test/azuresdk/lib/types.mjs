// Compares values with the types that a package declares: what is missing, what is not declared, and what has another
// type or another value than declared.
import { createRequire } from "node:module";
import { dirname, resolve } from "node:path";
import ts from "typescript";

const require = createRequire(import.meta.url);

function declarations(name) {
  const manifest = require.resolve(`${name}/package.json`);
  const { exports, types } = require(manifest);
  return resolve(dirname(manifest), exports?.["."]?.import?.types ?? types);
}

export class Types {
  #checker;
  #exports = new Map();

  constructor(names) {
    const roots = names.map(declarations);
    const program = ts.createProgram(roots, {
      strict: true,
      skipLibCheck: true,
      types: [],
      target: ts.ScriptTarget.ES2022,
      lib: ["lib.es2022.d.ts"],
      module: ts.ModuleKind.NodeNext,
      moduleResolution: ts.ModuleResolutionKind.NodeNext,
    });
    this.#checker = program.getTypeChecker();
    names.forEach((name, i) => {
      const symbol = this.#checker.getSymbolAtLocation(program.getSourceFile(roots[i]));
      this.#exports.set(name, new Map(this.#checker.getExportsOfModule(symbol).map((s) => [s.name, s])));
    });
  }

  /** The type of the instances of an exported class. */
  client(name, className) {
    const symbol = this.#exports.get(name).get(className);
    return this.#checker.getDeclaredTypeOfSymbol(this.#resolved(symbol));
  }

  /** The type of a property; undefined if the type has none of the name. */
  property(type, name) {
    const symbol = this.#checker.getPropertyOfType(type, name);
    return symbol && this.#checker.getTypeOfSymbol(symbol);
  }

  /** The type that a method returns. */
  returned(type) {
    return type.getCallSignatures()[0].getReturnType();
  }

  /** One of the type arguments, counted from the end if negative. */
  argument(type, index) {
    const all = type.aliasTypeArguments ?? this.#checker.getTypeArguments(type);
    return all.at(index);
  }

  /** What is wrong with a value of a type, as text. */
  check(type, value, path, known) {
    const wrong = [];
    this.#check(type, value, { path, known, wrong });
    return wrong;
  }

  #resolved(symbol) {
    return symbol.flags & ts.SymbolFlags.Alias ? this.#checker.getAliasedSymbol(symbol) : symbol;
  }

  #check(type, value, at) {
    const { flags } = type;
    if (flags & (ts.TypeFlags.Any | ts.TypeFlags.Unknown | ts.TypeFlags.Void)) return;
    if (type.isUnion() && !(flags & ts.TypeFlags.Boolean)) return this.#checkUnion(type, value, at);
    if (value === undefined) return void at.wrong.push(`${at.path}: missing`);
    if (type.isIntersection()) return this.#checkObject(type, value, at);
    if (flags & ts.TypeFlags.StringLike) return this.#checkText(type, value, at);
    if (flags & ts.TypeFlags.NumberLike) return this.#expect(Number.isFinite(value), "a number", value, at);
    if (flags & ts.TypeFlags.BooleanLike) return this.#expect(typeof value === "boolean", "a boolean", value, at);
    const name = type.getSymbol()?.name;
    if (name === "Date") return this.#expect(value instanceof Date && !Number.isNaN(value.getTime()), "a time", value, at);
    if (name === "Uint8Array") return this.#expect(value instanceof Uint8Array && value.length > 0, "bytes", value, at);
    if (this.#checker.isArrayType(type)) return this.#checkArray(type, value, at);
    this.#checkObject(type, value, at);
  }

  #checkUnion(type, value, at) {
    const empty = { undefined: ts.TypeFlags.Undefined, null: ts.TypeFlags.Null }[String(value)];
    if (value === undefined || value === null) {
      return this.#expect(type.types.some((t) => t.flags & empty), "a value", value, at);
    }
    const members = type.types.filter((t) => !(t.flags & (ts.TypeFlags.Undefined | ts.TypeFlags.Null)));
    let fewest;
    for (const member of members) {
      const wrong = [];
      this.#check(member, value, { ...at, wrong });
      if (wrong.length === 0) return;
      if (!fewest || wrong.length < fewest.length) fewest = wrong;
    }
    if (members.every((t) => t.isLiteral())) return this.#expect(false, `one of ${members.map((t) => t.value)}`, value, at);
    at.wrong.push(...fewest);
  }

  #checkText(type, value, at) {
    if (type.isStringLiteral()) return this.#expect(value === type.value, JSON.stringify(type.value), value, at);
    this.#expect(typeof value === "string", "a text", value, at);
    // A type that can grow is a text, and the package exports the values that it knows.
    const values = at.known?.[`Known${at.declared}`];
    if (values) this.#expect(Object.values(values).includes(value), `a value of Known${at.declared}`, value, at);
  }

  #checkArray(type, value, at) {
    if (!Array.isArray(value)) return this.#expect(false, "an array", value, at);
    for (const item of value) this.#check(this.argument(type, 0), item, { ...at, path: `${at.path}[]` });
  }

  #checkObject(type, value, at) {
    if (type.getCallSignatures().length > 0) return;
    if (typeof value !== "object" || value === null) return this.#expect(false, "an object", value, at);
    const declared = new Map(this.#checker.getPropertiesOfType(type).map((p) => [p.name, p]));
    for (const [name, symbol] of declared) {
      const inner = { ...at, path: `${at.path}.${name}`, declared: declaredName(symbol) };
      if (value[name] === undefined && symbol.flags & ts.SymbolFlags.Optional) continue;
      this.#check(this.#checker.getTypeOfSymbol(symbol), value[name], inner);
    }
    const others = type.getStringIndexType();
    for (const [name, item] of Object.entries(value)) {
      if (declared.has(name) || item === undefined) continue;
      if (others) this.#check(others, item, { ...at, path: `${at.path}.${name}` });
      else at.wrong.push(`${at.path}.${name}: not declared`);
    }
  }

  #expect(holds, wanted, value, at) {
    if (!holds) at.wrong.push(`${at.path}: ${JSON.stringify(value)} is not ${wanted}`);
  }
}

/** The name in the declaration of a property, such as KeySource in `keySource?: KeySource`. */
function declaredName(symbol) {
  let node = symbol.valueDeclaration?.type;
  if (node && ts.isArrayTypeNode(node)) node = node.elementType;
  return node && ts.isTypeReferenceNode(node) ? node.typeName.getText() : undefined;
}
