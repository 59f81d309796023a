// What the server answers.

export type Ready = "True" | "False" | "Unknown" | "Missing" | "";

export interface Row {
  kind: string;
  namespace: string;
  name: string;
  uid: string;
  resourceVersion: string;
  generation: number;
  observedGeneration: number;
  phase: string;
  ready: Ready;
  reason: string;
  message: string;
  since: string;
  created: string;
  deleting: boolean;
  suspended: boolean;
  drifts: number;
  lastDrift: string;
}

export interface KindError {
  kind: string;
  message: string;
}

export interface Session {
  user: string;
  groups?: string[];
  mode: "kubeconfig" | "token" | "proxy";
  csrf: string;
  console: string;
  cluster: string;
  cloud: boolean;
}

export interface Reference {
  kind: string;
  namespace: string;
  name: string;
}

export interface Child extends Reference {
  ready: Ready;
  message: string;
}

export interface Phase {
  name: string;
  condition: string;
  status: "True" | "False" | "Unknown" | "";
  reason: string;
  message: string;
  since: string;
  children?: Child[];
  gate: string;
}

export interface TreeNode extends Child {
  managers?: string[];
  children?: TreeNode[];
}

export interface Drift extends Reference {
  child: string;
  field: string;
  desired: string;
  found: string;
  manager: string;
  time: string;
  action: string;
  /** Describes a drift in the cloud, which has no fields. */
  message?: string;
}

export interface Condition {
  type: string;
  status: string;
  reason: string;
  message: string;
  lastTransitionTime: string;
  observedGeneration?: number;
}

export interface KubeObject {
  apiVersion: string;
  kind: string;
  metadata: { name: string; namespace?: string; generation?: number | undefined; annotations?: Record<string, string>; [key: string]: unknown };
  spec?: Record<string, unknown>;
  status?: { conditions?: Condition[]; [key: string]: unknown };
}

export interface Details {
  object: KubeObject;
  row: Row;
  phases?: Phase[];
  drifts?: Drift[];
  tree?: TreeNode;
  why: string;
  /** What the user may not read. */
  notes?: string[];
}

export interface Action extends Reference {
  verb: "create" | "update" | "delete" | "step" | "none";
  phase: string;
  diff?: string[];
  message: string;
}

export interface Plan {
  actions?: Action[];
  notes?: string[];
}

export interface BlameLine {
  text: string;
  manager: string;
  time: string;
}

export interface Contract {
  digest?: string;
  items: { kind: string; name: string; digest?: string; lines?: string[] }[];
  omitted?: number;
  lastChange?: { time: string };
  pending?: string;
  changes?: string[];
  approve?: string;
  from?: string;
  to?: string;
  diff?: { kind: string; name: string; change: string; lines?: string[] }[];
  note?: string;
}

export interface KubeEvent extends Reference {
  type: string;
  reason: string;
  message: string;
  count: number;
  first: string;
  last: string;
  component: string;
}

export interface Goes extends Reference {
  message: string;
}

export interface Cloud {
  accounts?: { name?: string; group?: string; provisioningState?: string; identity?: { principalId?: string }; key?: string; data?: string }[];
  grants?: { scope?: string; role?: string; principalId?: string; account?: string; orphan?: boolean; effective?: boolean }[];
  vaults?: { name?: string; group?: string; rbac?: boolean; purgeProtection?: boolean; deletedAt?: string; disabled?: boolean }[];
  keys?: { vault?: string; name?: string; kty?: string; keySize?: number; deletedAt?: string; versions?: { id?: string; enabled?: boolean }[] }[];
  operations?: { kind?: string; resource?: string; status?: string; startedAt?: string }[];
  ledger?: { time?: string; method?: string; path?: string; status?: number; by?: string; effect?: string; code?: string; detail?: string }[];
}

export interface Schema {
  type?: string;
  format?: string;
  description?: string;
  properties?: Record<string, Schema>;
  items?: Schema;
  additionalProperties?: Schema | boolean;
  required?: string[];
  enum?: unknown[];
  default?: unknown;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  pattern?: string;
  "x-kubernetes-int-or-string"?: boolean;
  "x-kubernetes-validations"?: { rule: string; message?: string }[];
}

export interface CRD {
  metadata: { name: string };
  spec: {
    group: string;
    scope: string;
    names: { kind: string; plural: string; shortNames?: string[]; categories?: string[] };
    versions: {
      name: string;
      served: boolean;
      storage: boolean;
      deprecated?: boolean;
      deprecationWarning?: string;
      schema?: { openAPIV3Schema?: Schema };
    }[];
  };
}
