// Failures of the cloud, as the SDKs see them, and which of them they retry.
import { authorization, cloud, demoVault, encryptionUser, group, keys, location, poll, refused, scenario, storage, vaultID, vaults } from "../lib/scenario.mjs";

/** A policy of the pipeline that counts the tries of each request, and remembers the headers of the last response. */
function counted() {
  const seen = { tries: 0, headers: undefined };
  const policy = {
    name: "count",
    sendRequest: async (request, next) => {
      seen.tries++;
      const response = await next(request);
      seen.headers = response.headers;
      return response;
    },
  };
  return { seen, options: { additionalPolicies: [{ policy, position: "perRetry" }] } };
}

await scenario(async () => {
  const facts = {};
  const { seen, options } = counted();
  const { storageAccounts } = await storage(options);
  const parameters = { location, kind: "StorageV2", sku: { name: "Standard_LRS" } };
  const name = "sdkfaults";
  const resource = `storageAccounts/${name}`;
  await storageAccounts.create(group, name, parameters).pollUntilDone();

  /** How a request ends, and after how many tries. */
  async function ends(send) {
    seen.tries = 0;
    let end = "done";
    try {
      await send();
    } catch (error) {
      end = `${error.name} ${error.statusCode} ${error.code}`;
    }
    return `${end} after ${seen.tries}`;
  }
  const get = () => storageAccounts.getProperties(group, name);
  const tag = (value) => () => storageAccounts.update(group, name, { tags: { value } });

  facts.get = {};
  const failures = [[408, "RequestTimeout"], [409, "StorageAccountOperationInProgress"], [429, "TooManyRequests"], [500, "InternalServerError"], [501, "NotImplemented"], [502, "BadGateway"], [503, "ServerTimeout"], [504, "GatewayTimeout"], [403, "AuthorizationFailed"]];
  for (const [status, code] of failures) {
    await cloud.fault({ method: "GET", resource, status, code, message: "once" });
    facts.get[code] = await ends(get);
  }
  facts.getAlways = {};
  for (const [status, code] of [[429, "TooManyRequests"], [503, "ServerTimeout"]]) {
    await cloud.fault({ method: "GET", resource, status, code, times: 4, retryAfter: status === 429 ? "1ms" : undefined });
    await cloud.knobs({ millisecondHints: true });
    facts.getAlways[code] = await ends(get);
  }
  await cloud.knobs({ millisecondHints: false });

  // The SDK waits for the whole seconds of Retry-After.
  await cloud.fault({ method: "GET", resource, status: 429, code: "TooManyRequests", retryAfter: "1s" });
  const since = performance.now();
  facts.retryAfter = [await ends(get), performance.now() - since > 990];

  await cloud.knobs({ writes: { capacity: 1, perSecond: 0 }, millisecondHints: true });
  await tag("first")();
  facts.bucket = [await ends(tag("second")), seen.headers.get("x-ms-ratelimit-remaining-subscription-writes")];
  await cloud.knobs({ writes: { capacity: 0, perSecond: 0 }, millisecondHints: false });

  await get();
  const etag = seen.headers.get("etag");
  const matching = (etag) => () => storageAccounts.update(group, name, { tags: { etag } }, { requestOptions: { headers: { "If-Match": etag } } });
  facts.etag = [await ends(matching(etag)), await ends(matching(etag))];
  facts.ifNoneMatch = await ends(() => storageAccounts.create(group, name, parameters, { requestOptions: { headers: { "If-None-Match": "*" } } }).pollUntilDone());

  await cloud.fault({ method: "PATCH", resource, lost: true });
  facts.lost = await ends(tag("lost"));
  await cloud.fault({ method: "PATCH", resource, status: 500, code: "InternalServerError", afterEffect: true });
  facts.afterEffect = await ends(tag("after effect"));

  // A creation whose response is lost goes on, and the repeated request is refused until it ends.
  await cloud.knobs({ accountCreation: "10m", pollInterval: "1s" });
  await cloud.fault({ method: "PUT", resource: "sdklost", lost: true });
  facts.lostCreation = await ends(() => storageAccounts.create(group, "sdklost", parameters).pollUntilDone());

  facts.failedOperation = {};
  for (const asyncOperation of [false, true]) {
    await cloud.knobs({ asyncOperation });
    await cloud.fault({ method: "PUT", resource: "sdkfails", failLate: true });
    facts.failedOperation[asyncOperation ? "Azure-AsyncOperation" : "Location"] = await failure(poll(storageAccounts.create(group, "sdkfails", parameters), "10m"));
  }
  const { result, polls } = await poll(storageAccounts.create(group, "sdkasync", parameters));
  facts.asyncOperation = [result.provisioningState, polls];
  await cloud.knobs({ accountCreation: "0s", failedAccountsStay: true });
  await cloud.fault({ method: "PUT", resource: "sdkstays", failLate: true });
  await storageAccounts.create(group, "sdkstays", parameters).pollUntilDone().catch(() => {});
  facts.failedAccount = String((await storageAccounts.getProperties(group, "sdkstays")).provisioningState);

  const scope = `${vaultID(demoVault).split("/providers/")[0]}/providers/Microsoft.Storage/storageAccounts/${name}`;
  await cloud.meddle({ action: "lock", scope, name: "keep", level: "CanNotDelete" });
  facts.locked = await ends(() => storageAccounts.delete(group, name));
  await cloud.knobs({ denied: [{ action: "Microsoft.Storage/storageAccounts/write" }] });
  facts.denied = await ends(tag("denied"));
  facts.noGroup = await ends(() => storageAccounts.getProperties("none", name));
  facts.noToken = await refused((await storage({}, { getToken: async () => ({ token: "forged", expiresOnTimestamp: Date.now() + 3600_000 }) })).storageAccounts.getProperties(group, name));
  await cloud.knobs({ latency: "30s" });
  facts.aborted = await failure(storageAccounts.getProperties(group, name, { abortSignal: AbortSignal.timeout(100) }));
  await cloud.knobs({ latency: "0s" });

  // The other clients retry the same.
  const others = {
    vaults: async (options) => { const { vaults: client } = await vaults(options); return () => client.get(group, demoVault); },
    roles: async (options) => { const { roleDefinitions } = await authorization(options); return () => roleDefinitions.get(vaultID(demoVault), encryptionUser); },
    keys: async (options) => { const client = await keys(demoVault, options); await client.getKey("storage"); return () => client.getKey("storage"); },
  };
  facts.others = {};
  for (const [of, open] of Object.entries(others)) {
    const { seen, options } = counted();
    const send = await open(options);
    seen.tries = 0;
    await cloud.fault({ method: "GET", resource: demoVault, status: 503, code: "ServerTimeout" });
    await cloud.fault({ method: "GET", resource: demoVault, status: 429, code: "TooManyRequests", retryAfter: "1s" });
    await send();
    await cloud.fault({ method: "GET", resource: demoVault, status: 409, code: "ConflictError" });
    facts.others[of] = [seen.tries, await refused(send())];
  }
  return facts;
});

/** What a promise fails with. */
async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return [error.name, error.statusCode, error.code, error.message.split("\n")[0]].filter(Boolean).join(" ");
  }
  return "no failure";
}
