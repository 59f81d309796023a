// Responses that no cloud sends, which the inspector must find: with properties that are unknown, missing, and wrong.
import { authorization, demoVault, group, keys, scenario, storage, vaultID, vaults } from "../lib/scenario.mjs";

/** A transport that answers every request with the same body. */
function answers(body) {
  const httpClient = {
    sendRequest: async (request) => ({ request, status: 200, headers: headers(request), bodyAsText: JSON.stringify(body) }),
  };
  return { httpClient, retryOptions: { maxRetries: 0 } };
}

function headers(request) {
  const empty = request.headers.clone?.() ?? Object.create(request.headers);
  for (const [name] of [...request.headers]) empty.delete(name);
  empty.set("content-type", "application/json");
  return empty;
}

await scenario(async () => {
  const account = { id: "x", name: "x", tags: { a: "b" }, sku: { tier: "Standard" }, kind: "StorageV3", surprise: 1, properties: { creationTime: "yesterday", isHnsEnabled: "no", encryption: { keySource: "Microsoft.Storage", services: { blob: { enabled: true, color: "red" } } } } };
  await (await storage(answers(account))).storageAccounts.getProperties(group, "x");
  await (await vaults(answers({ name: "x", properties: { sku: { family: "B", name: "standard" }, vaultUri: 7, accessPolicies: [{ tenantId: "x", objectId: "y", permissions: { keys: ["fly"] }, mood: "good" }] } }))).vaults.get(group, "x");
  await (await keys("x", answers({ key: { kid: "https://x.vault.azure.net/keys/a/b", kty: "RSA" }, attributes: { enabled: true, weight: 1 } }))).getKey("a");
  await (await authorization(answers({ name: "x", color: "red", properties: { principalId: 1, surprise: true } }))).roleAssignments.get(vaultID(demoVault), "x");
  return {};
});
