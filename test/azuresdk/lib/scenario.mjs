// What each scenario starts with: clients of the SDKs that are inspected, and the admin API of the fake cloud.
import "./connect.mjs";
import { AuthorizationManagementClient } from "@azure/arm-authorization";
import { KeyVaultManagementClient } from "@azure/arm-keyvault";
import { StorageManagementClient } from "@azure/arm-storage";
import { KeyClient } from "@azure/keyvault-keys";
import { Inspector } from "./inspect.mjs";

export const subscription = "00000000-0000-4000-8000-00000000f1c5";
export const tenant = "72f988bf-0000-4000-8000-2d7cd011db47";
export const group = "fixpoint-demo";
export const location = "westeurope";
export const demoVault = "fixpoint-demo";
export const demoKey = "storage";
export const encryptionUser = "e147488a-f6f5-4113-8e2d-b22465e65bf6";

export const vaultID = (name) => `/subscriptions/${subscription}/resourceGroups/${group}/providers/Microsoft.KeyVault/vaults/${name}`;
export const roleID = (role) => `/subscriptions/${subscription}/providers/Microsoft.Authorization/roleDefinitions/${role}`;
export const vaultURL = (name) => `https://${name}.vault.azure.net`;

/** A credential of the fake cloud's own; the scenario login uses those of @azure/identity. */
const token = { getToken: async () => ({ token: "fakecloud:sdk", expiresOnTimestamp: Date.now() + 3600_000 }) };

const inspector = new Inspector(["@azure/arm-storage", "@azure/arm-keyvault", "@azure/arm-authorization", "@azure/keyvault-keys"]);

// Retries soon, but as often and for the same errors as by default.
const retryOptions = { maxRetries: 3, retryDelayInMs: 10, maxRetryDelayInMs: 50 };

const client = (Client, first, name) => (options, credential = token) => inspector.watch(new Client(...first(credential), { retryOptions, ...options }), name, Client.name);

export const storage = client(StorageManagementClient, (credential) => [credential, subscription], "@azure/arm-storage");
export const vaults = client(KeyVaultManagementClient, (credential) => [credential, subscription], "@azure/arm-keyvault");
export const authorization = client(AuthorizationManagementClient, (credential) => [credential, subscription], "@azure/arm-authorization");
export const keys = (vault, ...rest) => client(KeyClient, (credential) => [vaultURL(vault), credential], "@azure/keyvault-keys")(...rest);

async function admin(method, path, body) {
  const response = await fetch(`${process.env.FAKE_CLOUD}/_admin/${path}`, { method, body: body && JSON.stringify(body) });
  const answer = await response.json();
  if (!response.ok) throw new Error(`${method} ${path}: ${JSON.stringify(answer)}`);
  return answer;
}

export const cloud = {
  knobs: (knobs) => admin("PUT", "knobs", knobs),
  fault: (fault) => admin("POST", "faults", fault),
  advance: (by) => admin("POST", `advance?by=${by}`),
  seed: (what) => admin("POST", "seed", what),
  meddle: (what) => admin("POST", "meddle", what),
  counts: (resource) => admin("GET", `counts?resource=${resource}`),
};

/** What a request was refused with, as the SDK reports it. */
export async function refused(promise) {
  try {
    await promise;
  } catch (error) {
    return `${error.name} ${error.statusCode} ${error.code}`;
  }
  throw new Error("the request was not refused");
}

/** The items of a list. */
export async function all(pages) {
  const items = [];
  for await (const item of pages) items.push(item);
  return items;
}

/** Polls an operation that ends only when the clock of the cloud advances, and counts the polls. */
export async function poll(poller, step = "2m") {
  let polls = 0;
  while (!poller.isDone) {
    await poller.poll();
    polls++;
    await cloud.advance(step);
  }
  return { result: await poller.pollUntilDone(), polls };
}

/** Runs a scenario, and prints what it found out and what the inspector found. */
export async function scenario(run) {
  const facts = await run();
  process.stdout.write(JSON.stringify({ facts, ...inspector.report() }));
}
