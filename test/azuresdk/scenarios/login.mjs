// The credentials of @azure/identity, against the token endpoint and the challenges of key vaults.
import { ClientAssertionCredential, ClientSecretCredential, WorkloadIdentityCredential } from "@azure/identity";
import { cloud, demoKey, demoVault, group, keys, refused, scenario, storage, tenant, vaults } from "../lib/scenario.mjs";

const clientID = process.env.CLIENT_ID;
const secret = process.env.CLIENT_SECRET;
const tokenFilePath = process.env.TOKEN_FILE;

async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return [error.name, error.statusCode, ...error.message.match(/^\w+|AADSTS\d+/g)].filter(Boolean).join(" ");
  }
  return "no failure";
}

await scenario(async () => {
  const facts = {};
  const credentials = {
    secret: new ClientSecretCredential(tenant, clientID, secret),
    workload: new WorkloadIdentityCredential({ tenantId: tenant, clientId: clientID, tokenFilePath }),
    assertion: new ClientAssertionCredential(tenant, clientID, async () => "signed elsewhere"),
    // An authority that the SDK does not know by itself, so that it reads its configuration.
    otherAuthority: new ClientSecretCredential(tenant, clientID, secret, { authorityHost: "https://localhost", disableInstanceDiscovery: true }),
  };
  facts.tags = {};
  for (const [name, credential] of Object.entries(credentials)) {
    const { storageAccounts } = await storage({}, credential);
    const account = `sdk${name.toLowerCase()}`;
    await cloud.seed({ subscription: "00000000-0000-4000-8000-00000000f1c5", group, account });
    facts.tags[name] = (await storageAccounts.update(group, account, { tags: { by: name } })).tags.by;
    facts.key = (await (await keys(demoVault, {}, credential)).getKey(demoKey)).name;
    facts.vault = (await (await vaults({}, credential)).vaults.get(group, demoVault)).name;
  }
  const scope = "https://management.azure.com/.default";
  const token = await credentials.secret.getToken(scope);
  facts.token = [token.tokenType ?? "Bearer", token.expiresOnTimestamp - Date.now() > 50 * 60_000];
  facts.wrongSecret = await failure(new ClientSecretCredential(tenant, clientID, "wrong").getToken(scope));
  facts.unknownClient = await failure(new ClientSecretCredential(tenant, "22222222-2222-4222-8222-222222222222", secret).getToken(scope));
  facts.expired = await expired(token);
  return facts;
});

/** How the cloud refuses a token an hour later. */
async function expired(token) {
  await cloud.advance("61m");
  const { storageAccounts } = await storage({}, { getToken: async () => token });
  return refused(storageAccounts.checkNameAvailability({ name: "sdklogin", type: "Microsoft.Storage/storageAccounts" }));
}
