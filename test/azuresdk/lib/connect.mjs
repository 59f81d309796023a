// Leads every connection of this process to the fake cloud. The SDKs keep their own endpoints, such as
// https://management.azure.com: the fake cloud has a certificate for them.
import http from "node:http";
import https from "node:https";
import tls from "node:tls";

const { port } = new URL(process.env.FAKE_CLOUD);

https.Agent.prototype.createConnection = function (options) {
  return tls.connect({ ...options, host: "127.0.0.1", port: Number(port), lookup: undefined });
};
http.Agent.prototype.createConnection = function (options) {
  throw new Error(`a connection without TLS to ${options.host}`);
};
