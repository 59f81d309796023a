// Role assignments and the definitions of their roles.
import { all, authorization, cloud, demoVault, encryptionUser, group, location, refused, roleID, scenario, storage, subscription, vaultID } from "../lib/scenario.mjs";

const reader = "acdd72a7-3385-48ef-bd42-f606fba81ae7";
const named = (n) => `6f0f3d4c-55b5-4a3e-9d0c-5d0f0c0f5a0${n}`;

await scenario(async () => {
  const facts = {};
  const { roleAssignments, roleDefinitions } = await authorization();
  const { storageAccounts } = await storage();
  await cloud.knobs({ directoryDelay: "10m" });
  const account = await storageAccounts.create(group, "sdkgrants", { location, kind: "StorageV2", sku: { name: "Standard_LRS" }, identity: { type: "SystemAssigned" } }).pollUntilDone();
  const { principalId } = account.identity;
  const scope = vaultID(demoVault);
  const grant = (role, more) => ({ roleDefinitionId: roleID(role), principalId, ...more });

  facts.absent = await refused(roleAssignments.get(scope, named(1)));
  facts.notReplicated = await refused(roleAssignments.create(scope, named(1), grant(encryptionUser)));
  const created = await roleAssignments.create(scope, named(1), grant(encryptionUser, { principalType: "ServicePrincipal", description: "the key of sdkgrants" }));
  facts.created = [created.name, created.scope === scope, created.principalType, created.description, created.createdOn instanceof Date, created.roleDefinitionId === roleID(encryptionUser)];
  await cloud.advance("10m");
  facts.same = (await roleAssignments.create(scope, named(1), grant(encryptionUser))).id === created.id;
  facts.twin = await refused(roleAssignments.create(scope, named(2), grant(encryptionUser)));
  facts.other = await refused(roleAssignments.create(scope, named(1), grant(reader)));
  facts.badName = await refused(roleAssignments.create(scope, "reader", grant(reader)));
  facts.badRole = await refused(roleAssignments.create(scope, named(3), grant("00000000-0000-4000-8000-000000000000")));
  facts.badType = await refused(roleAssignments.create(scope, named(3), grant(reader, { principalType: "User" })));
  facts.got = (await roleAssignments.get(scope, named(1))).id === created.id;
  facts.gotByID = (await roleAssignments.getById(created.id)).name;

  await roleAssignments.create(scope, named(4), grant(reader));
  await roleAssignments.create(`/subscriptions/${subscription}`, named(5), grant(reader));
  await cloud.knobs({ pageSize: 1 });
  const filters = { all: undefined, here: "atScope()", principal: `principalId eq '${principalId}'`, assigned: `assignedTo('${principalId}')`, nobody: "principalId eq '00000000-0000-4000-8000-000000000000'" };
  facts.listed = {};
  for (const [name, filter] of Object.entries(filters)) facts.listed[name] = (await all(roleAssignments.listForScope(scope, { filter }))).map((a) => a.name.at(-1)).sort().join("");
  facts.inSubscription = (await all(roleAssignments.listForSubscription({ filter: `principalId eq '${principalId}'` }))).length;
  facts.badFilter = await refused(all(roleAssignments.listForScope(scope, { filter: "color eq 'red'" })));

  await cloud.knobs({ pageSize: 100 });
  const definition = await roleDefinitions.get(scope, encryptionUser);
  facts.role = [definition.roleName, definition.roleType, definition.permissions[0].dataActions.length];
  facts.roleByID = (await roleDefinitions.getById(roleID(encryptionUser))).name;
  facts.rolesNamed = (await all(roleDefinitions.list(scope, { filter: "roleName eq 'Key Vault Crypto Service Encryption User'" }))).map((r) => r.name);
  facts.unknownRole = await refused(roleDefinitions.get(scope, "00000000-0000-4000-8000-000000000000"));

  facts.deleted = (await roleAssignments.delete(scope, named(1))).name;
  facts.deletedTwice = (await roleAssignments.delete(scope, named(1))).id === undefined;
  facts.gone = await refused(roleAssignments.get(scope, named(1)));
  await storageAccounts.delete(group, "sdkgrants");
  return facts;
});
