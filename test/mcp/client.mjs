// Connects to an MCP server with the official client for TypeScript, which gets its token from the authorization server
// that it discovers, and prints what it has found. Arguments: the URL of the server, and that of one for another audience.
import { Client, StreamableHTTPClientTransport, UnauthorizedError } from "@modelcontextprotocol/client";

const [endpoint, other] = process.argv.slice(2);
const redirectUrl = "http://localhost/callback";

// The provider has no dynamic registration, so the client is known there. Everything else is discovered.
const stored = {};
let asked;
const provider = {
  redirectUrl,
  clientMetadata: { redirect_uris: [redirectUrl], client_name: "test", token_endpoint_auth_method: "none" },
  clientInformation: () => ({ client_id: "mcp-client" }),
  tokens: () => stored.tokens,
  saveTokens: (tokens) => (stored.tokens = tokens),
  codeVerifier: () => stored.verifier,
  saveCodeVerifier: (verifier) => (stored.verifier = verifier),
  redirectToAuthorization: (url) => (asked = url),
};

// logIn does what a user does in a browser, and returns the authorization code.
async function logIn(url) {
  const page = await fetch(url);
  const form = new URL(page.url);
  let response = await fetch(form.origin + form.pathname, {
    method: "POST",
    redirect: "manual",
    body: new URLSearchParams({ username: "test-user@localhost", password: "verysecure", id: form.searchParams.get("authRequestID") }),
  });
  for (let i = 0; i < 5; i++) {
    const next = new URL(response.headers.get("location"), form);
    if (next.href.startsWith(redirectUrl)) return next.searchParams;
    response = await fetch(next, { redirect: "manual" });
  }
  throw new Error("the provider did not redirect to the client");
}

const newClient = () => new Client({ name: "test", version: "1" });
const transport = new StreamableHTTPClientTransport(new URL(endpoint), { authProvider: provider });
let unauthorized = false;
try {
  await newClient().connect(transport);
} catch (error) {
  if (!(error instanceof UnauthorizedError)) throw error;
  unauthorized = true;
}
await transport.finishAuth(await logIn(asked));

const client = newClient();
await client.connect(new StreamableHTTPClientTransport(new URL(endpoint), { authProvider: provider }));
const { tools } = await client.listTools();
const result = await client.callTool({ name: "test_simple_text", arguments: {} });
await client.close();

// With the token alone, so that the client does not ask for another one.
let refused = "";
try {
  await newClient().connect(new StreamableHTTPClientTransport(new URL(other), { requestInit: { headers: { Authorization: "Bearer " + stored.tokens.access_token } } }));
} catch (error) {
  refused = String(error);
}
console.log(JSON.stringify({
  unauthorized,
  challenge: asked.searchParams.get("code_challenge_method"),
  resource: asked.searchParams.get("resource"),
  scope: asked.searchParams.get("scope"),
  tools: tools.map((tool) => tool.name),
  text: result.content[0].text,
  refused,
}));
