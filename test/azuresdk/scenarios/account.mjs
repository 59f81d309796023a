// The life of a storage account with a customer-managed key.
import { all, authorization, cloud, demoKey, demoVault, encryptionUser, group, keys, location, poll, refused, roleID, scenario, storage, vaultID, vaultURL } from "../lib/scenario.mjs";

await scenario(async () => {
  const facts = {};
  const { storageAccounts } = await storage();
  const { roleAssignments } = await authorization();
  const name = "sdkaccount";
  const parameters = { location, kind: "StorageV2", sku: { name: "Standard_LRS" }, identity: { type: "SystemAssigned" }, tags: { team: "billing" }, minimumTlsVersion: "TLS1_2", allowBlobPublicAccess: false };

  const available = () => storageAccounts.checkNameAvailability({ name, type: "Microsoft.Storage/storageAccounts" });
  facts.free = (await available()).nameAvailable;
  facts.absent = await refused(storageAccounts.getProperties(group, name));

  await cloud.knobs({ accountCreation: "10m", accountUpdate: "10m", principalDelay: "20m", pollInterval: "1s" });
  const { result: created, polls } = await poll(storageAccounts.create(group, name, parameters));
  facts.polls = polls;
  facts.principalLater = created.identity.principalId === undefined;
  facts.created = [created.provisioningState, created.kind, created.sku.name, created.sku.tier, created.identity.type, created.creationTime instanceof Date, created.primaryEndpoints.blob, created.minimumTlsVersion];
  facts.taken = (await available()).reason;
  await cloud.advance("20m");
  const principalId = (await storageAccounts.getProperties(group, name)).identity.principalId;
  facts.principal = typeof principalId;

  facts.tagged = (await storageAccounts.update(group, name, { tags: { team: "billing", tier: "gold" } })).tags;
  facts.inProgress = await refused(storageAccounts.update(group, name, { tags: {} }));
  await cloud.advance("10m");

  const withKey = (keyversion) => ({ encryption: { keySource: "Microsoft.Keyvault", keyVaultProperties: { name: demoKey, keyVaultUri: vaultURL(demoVault), keyVersion: keyversion }, services: { blob: { enabled: true }, file: { enabled: true } } } });
  facts.withoutGrant = await refused(storageAccounts.update(group, name, withKey("")));
  await cloud.knobs({ accountUpdate: "0s" });
  const grant = "6f0f3d4c-55b5-4a3e-9d0c-5d0f0c0f5a01";
  await roleAssignments.create(vaultID(demoVault), grant, { roleDefinitionId: roleID(encryptionUser), principalId, principalType: "ServicePrincipal" });
  const encrypted = (await storageAccounts.update(group, name, withKey(""))).encryption;
  facts.encrypted = [encrypted.keySource, encrypted.keyVaultProperties.keyName, encrypted.keyVaultProperties.lastKeyRotationTimestamp instanceof Date, encrypted.services.blob.enabled];
  const versionOf = (encryption) => encryption.keyVaultProperties.currentVersionedKeyIdentifier.split("/").at(-1);

  const first = versionOf(encrypted);
  const keyClient = await keys(demoVault);
  const second = (await keyClient.rotateKey(demoKey)).properties.version;
  await cloud.advance("25h");
  const followed = versionOf((await storageAccounts.getProperties(group, name)).encryption);
  facts.follows = [followed === second, followed !== first];
  const pinned = (await storageAccounts.update(group, name, withKey(first))).encryption;
  facts.pinned = [versionOf(pinned) === first, pinned.keyVaultProperties.keyVersion === first];
  facts.platform = (await storageAccounts.update(group, name, { encryption: { keySource: "Microsoft.Storage" } })).encryption.keySource;

  for (const other of ["sdkother1", "sdkother2", "sdkother3", "sdkother4"]) await storageAccounts.create(group, other, parameters, { updateIntervalInMs: 1 }).submitted();
  await cloud.advance("10m");
  await cloud.knobs({ pageSize: 2 });
  facts.listed = (await all(storageAccounts.list())).map((a) => a.name);
  facts.listedInGroup = (await all(storageAccounts.listByResourceGroup(group))).length;

  await cloud.knobs({ accountDeletion: "10m", nameHold: "20m" });
  await storageAccounts.delete(group, name);
  facts.deleting = String((await storageAccounts.getProperties(group, name)).provisioningState);
  await cloud.advance("10m");
  facts.deleted = await refused(storageAccounts.getProperties(group, name));
  facts.held = (await available()).nameAvailable;
  await cloud.advance("20m");
  facts.freed = (await available()).nameAvailable;
  await storageAccounts.delete(group, name);
  await roleAssignments.delete(vaultID(demoVault), grant);
  return facts;
});
