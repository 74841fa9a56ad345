// A shelf of books on Express. express-openapi-validator parses and checks every request by
// `shelf.json`: what breaks the document is answered by 400, and anything else by what it parsed.
//
// Prints {"port": N} once it listens on 127.0.0.1.

import { readFileSync } from "node:fs";

import express from "express";
import { middleware } from "express-openapi-validator";

const apiSpec = JSON.parse(readFileSync(new URL("shelf.json", import.meta.url), "utf8"));
const app = express();
app.set("query parser", "extended");

app.get("/docs/openapi.json", (_, answer) => answer.json(apiSpec));
app.use(express.json({ type: ["application/json", "application/merge-patch+json"] }));
app.use(express.urlencoded({ extended: true }));
app.use(express.text());
app.use(express.raw({ type: "application/octet-stream" }));
app.use((request, _, next) => {
  const pairs = (request.headers.cookie ?? "").split("; ").filter(Boolean).map((pair) => pair.split("="));
  request.cookies = Object.fromEntries(pairs.map(([name, value]) => [name, decodeURIComponent(value)]));
  next();
});
app.use(
  middleware({
    apiSpec,
    validateRequests: { allowUnknownQueryParameters: false },
    validateSecurity: { handlers: { key: (request) => request.headers["x-key"] === "k1" } },
    ignorePaths: /^\/docs\//,
  }),
);
app.use((request, answer) => {
  const { params: path, query, cookies: cookie, openapi } = request;
  const declared = (openapi.schema.parameters ?? []).filter((parameter) => parameter.in === "header");
  const header = Object.fromEntries(declared.map(({ name }) => [name, request.headers[name.toLowerCase()]]));
  const files = (request.files ?? []).map(({ fieldname, originalname, mimetype, buffer }) => {
    return { field: fieldname, name: originalname, type: mimetype, content: buffer.toString() };
  });
  const body = Buffer.isBuffer(request.body) ? request.body.toString() : request.body;
  answer.json({ path: openapi.pathParams ?? path, query, header, cookie, body: body ?? null, files });
});
app.use((fault, _request, answer, _next) => {
  answer.status(fault.status ?? 500).json({ message: fault.message, errors: fault.errors });
});

const server = app.listen(0, "127.0.0.1", () => {
  console.log(JSON.stringify({ port: server.address().port }));
});
