// The life of a key vault with its access policies.
import { all, cloud, group, location, poll, refused, scenario, tenant, vaults } from "../lib/scenario.mjs";

await scenario(async () => {
  const facts = {};
  const client = await vaults();
  const name = "sdk-vault";
  const reader = { tenantId: tenant, objectId: "8f1d8c1e-1f0a-4b2b-9d1a-5a7e0c9b1a01", permissions: { keys: ["get", "wrapKey"] } };
  const parameters = (properties) => ({ location, tags: { team: "billing" }, properties: { tenantId: tenant, sku: { family: "A", name: "standard" }, accessPolicies: [], softDeleteRetentionInDays: 7, ...properties } });
  const policies = (vault) => vault.properties.accessPolicies.map((p) => p.permissions.keys);

  const available = (vault) => client.vaults.checkNameAvailability({ name: vault, type: "Microsoft.KeyVault/vaults" });
  facts.free = (await available(name)).nameAvailable;
  facts.badName = (await available("1-vault")).reason;
  facts.absent = await refused(client.vaults.get(group, name));

  await cloud.knobs({ vaultCreation: "10m", vaultUpdate: "10m" });
  const { result: created, polls } = await poll(client.vaults.createOrUpdate(group, name, parameters(), { updateIntervalInMs: 5 }));
  facts.polls = polls;
  facts.created = [created.properties.provisioningState, created.properties.vaultUri, created.properties.enableSoftDelete, created.properties.softDeleteRetentionInDays, created.properties.enablePurgeProtection];
  facts.taken = (await available(name)).reason;

  facts.added = policies(await client.vaults.updateAccessPolicy(group, name, "add", { properties: { accessPolicies: [reader] } }));
  facts.busy = await refused(client.vaults.updateAccessPolicy(group, name, "add", { properties: { accessPolicies: [reader] } }));
  await cloud.knobs({ vaultUpdate: "0s", vaultCreation: "0s" });
  await cloud.advance("10m");
  facts.merged = policies(await client.vaults.updateAccessPolicy(group, name, "add", { properties: { accessPolicies: [{ ...reader, permissions: { keys: ["unwrapKey"] } }] } }));
  facts.removed = policies(await client.vaults.updateAccessPolicy(group, name, "remove", { properties: { accessPolicies: [{ ...reader, permissions: { keys: ["wrapKey"] } }] } }));
  facts.replaced = policies(await client.vaults.updateAccessPolicy(group, name, "replace", { properties: { accessPolicies: [reader] } }));
  facts.tags = (await client.vaults.update(group, name, { tags: { tier: "gold" } })).tags;
  facts.retention = await refused(client.vaults.update(group, name, { properties: { softDeleteRetentionInDays: 1 } }));

  for (const other of ["sdk-vault-2", "sdk-vault-3"]) await client.vaults.createOrUpdate(group, other, parameters({ enableRbacAuthorization: true, enablePurgeProtection: other.endsWith("3") || undefined })).pollUntilDone();
  facts.protected = (await client.vaults.get(group, "sdk-vault-3")).properties.enablePurgeProtection;
  facts.unprotect = await refused(client.vaults.update(group, "sdk-vault-3", { properties: { enablePurgeProtection: false } }));
  await cloud.knobs({ pageSize: 2 });
  facts.listed = (await all(client.vaults.listBySubscription())).map((v) => v.name);
  facts.listedInGroup = (await all(client.vaults.listByResourceGroup(group))).length;

  await client.vaults.delete(group, name);
  await client.vaults.delete(group, "sdk-vault-3");
  facts.gone = await refused(client.vaults.get(group, name));
  facts.deletedVaults = (await all(client.vaults.listDeleted())).map((v) => v.name);
  const deleted = await client.vaults.getDeleted(name, location);
  facts.deleted = [deleted.properties.scheduledPurgeDate - deleted.properties.deletionDate, deleted.properties.vaultId.split("/").at(-1), deleted.properties.location];
  facts.softDeleted = await refused(client.vaults.createOrUpdate(group, name, parameters()).pollUntilDone());
  const recovered = await client.vaults.createOrUpdate(group, name, parameters({ createMode: "recover" })).pollUntilDone();
  facts.recovered = policies(recovered);

  await client.vaults.delete(group, name);
  facts.purgeProtected = await refused(client.vaults.purgeDeleted("sdk-vault-3", location).pollUntilDone());
  await cloud.knobs({ vaultCreation: "10m", pollInterval: "1s" });
  facts.purgePolls = (await poll(client.vaults.purgeDeleted(name, location))).polls;
  facts.purged = await refused(client.vaults.getDeleted(name, location));
  facts.freed = (await available(name)).nameAvailable;
  return facts;
});
