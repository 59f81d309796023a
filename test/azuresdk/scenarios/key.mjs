// The life of a key: in the data plane of its key vault, and as Azure Resource Manager shows it.
import { all, cloud, demoKey, demoVault, group, keys, location, refused, scenario, tenant, vaults } from "../lib/scenario.mjs";

await scenario(async () => {
  const facts = {};
  const { vaults: keyVaults, keys: resources } = await vaults();
  const vault = "sdk-keys";
  await keyVaults.createOrUpdate(group, vault, { location, properties: { tenantId: tenant, sku: { family: "A", name: "standard" }, enableRbacAuthorization: true } }).pollUntilDone();
  const client = await keys(vault);
  const name = "storage";

  facts.absent = await refused(client.getKey(name));
  const created = await client.createRsaKey(name, { keySize: 3072, keyOps: ["wrapKey", "unwrapKey"], tags: { team: "billing" } });
  facts.created = [created.keyType, created.key.n.length * 8, created.keyOperations, created.properties.enabled, created.properties.recoveryLevel, created.properties.vaultUrl, created.properties.tags];
  facts.elliptic = (await client.createEcKey("signing", { curve: "P-256" })).key.crv;
  const first = created.properties.version;
  const second = (await client.rotateKey(name)).properties.version;
  const third = (await client.createRsaKey(name, { keySize: 3072 })).properties.version;
  facts.versions = new Set([first, second, third]).size;
  facts.newest = (await client.getKey(name)).properties.version === third;
  facts.oldest = (await client.getKey(name, { version: first })).properties.version === first;
  facts.disabled = (await client.updateKeyProperties(name, first, { enabled: false, expiresOn: new Date("2035-01-01T00:00:00Z") })).properties.enabled;
  await cloud.knobs({ pageSize: 2 });
  facts.listedVersions = (await all(client.listPropertiesOfKeyVersions(name))).map((p) => p.enabled);
  facts.listed = (await all(client.listPropertiesOfKeys())).map((p) => p.name);

  const shown = await resources.get(group, vault, name);
  facts.shown = [shown.kty, shown.keySize, shown.keyUriWithVersion.endsWith(third), shown.attributes.enabled];
  facts.shownVersion = (await resources.getVersion(group, vault, name, first)).attributes.expires;
  facts.shownVersions = (await all(resources.listVersions(group, vault, name))).length;
  facts.createdByManager = (await resources.createIfNotExist(group, vault, "third", { properties: { kty: "RSA", keySize: 4096, keyOps: ["wrapKey", "unwrapKey"] } })).keySize;
  facts.shownKeys = (await all(resources.list(group, vault))).map((k) => k.name);
  facts.resourceAbsent = await refused(resources.get(group, vault, "none"));

  await cloud.knobs({ readAfterWrite: "10m" });
  const deletion = await client.beginDeleteKey(name, { intervalInMs: 5 });
  facts.deleting = !deletion.isDone();
  await cloud.advance("10m");
  const deleted = await deletion.pollUntilDone();
  facts.deleted = [deleted.properties.recoveryId, deleted.properties.scheduledPurgeDate - deleted.properties.deletedOn];
  facts.gone = await refused(client.getKey(name));
  facts.taken = await refused(client.createRsaKey(name));
  facts.takenInManager = await refused(resources.createIfNotExist(group, vault, name, { properties: { kty: "RSA" } }));
  facts.listedDeleted = (await all(client.listDeletedKeys())).map((k) => k.name);
  facts.foundDeleted = (await client.getDeletedKey(name)).name;
  await cloud.knobs({ readAfterWrite: "0s" });
  const recovered = await (await client.beginRecoverDeletedKey(name, { intervalInMs: 5 })).pollUntilDone();
  facts.recovered = recovered.properties.version === third;

  await (await client.beginDeleteKey("signing", { intervalInMs: 5 })).pollUntilDone();
  await client.purgeDeletedKey("signing");
  facts.purged = await refused(client.getDeletedKey("signing"));
  const guarded = await keys(demoVault);
  await (await guarded.beginDeleteKey(demoKey, { intervalInMs: 5 })).pollUntilDone();
  facts.purgeProtected = await refused(guarded.purgeDeletedKey(demoKey));
  facts.badKind = await refused(client.createKey("other", "DES"));
  await cloud.knobs({ denied: [{ action: "Microsoft.KeyVault/vaults/keys/*" }] });
  facts.forbidden = await refused(client.getKey(name));
  return facts;
});
