// What users of the packages beside the npm client do, with nothing but base URL and key changed.
// node tools.mjs NAME, with BASE_URL and API_KEY in the environment.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile, readdir } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { UnauthorizedError } from "@modelcontextprotocol/sdk/client/auth.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { createBash } from "@supermemory/bash";
import { supermemoryTools, withSupermemory } from "@supermemory/tools/ai-sdk";
import { createClaudeMemoryTool } from "@supermemory/tools/claude-memory";
import { withSupermemory as withMastra } from "@supermemory/tools/mastra";
import {
  createToolCallExecutor,
  getToolDefinitions,
  withSupermemory as withOpenAI,
} from "@supermemory/tools/openai";
import { withSupermemory as withVoltAgent } from "@supermemory/tools/voltagent";
import { createServer } from "node:http";
import OpenAI from "openai";
import { generateText } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import Supermemory from "supermemory";

const { BASE_URL: baseUrl, API_KEY: apiKey } = process.env;
const client = new Supermemory({ baseURL: baseUrl, apiKey });
const run = promisify(execFile);

async function settled(containerTag, count) {
  for (;;) {
    const { memories } = await client.documents.list({ containerTags: [containerTag] });
    for (const { status } of memories) assert.notEqual(status, "failed");
    if (memories.filter(({ status }) => status === "done").length >= count) return memories;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

// The same for both kits: what a model may call.
async function seven(call, tag) {
  const added = await call("addMemory", { memory: "Ann drinks green tea." });
  assert.equal(added.success, true, added.error);
  const document = await call("documentAdd", {
    content: "The heron stands in the shallow water.",
    title: "Heron",
    description: "Of birds.",
  });
  assert.equal(document.success, true, document.error);
  await settled(tag, 2);
  const found = await call("searchMemories", {
    informationToGet: "where does the heron stand",
    includeFullDocs: false,
    limit: 5,
  });
  assert.equal(found.success, true, found.error);
  assert.ok(found.results.some((one) => JSON.stringify(one).includes("shallow water")));
  const otherWords = { informationToGet: "what does Ann like to drink", limit: 5 };
  const recalled = await call("searchMemories", { includeFullDocs: false, ...otherWords });
  assert.ok(JSON.stringify(recalled.results?.[0]).includes("green tea"), recalled.error);
  const listed = await call("documentList", { limit: 10 });
  assert.equal(listed.success, true, listed.error);
  assert.equal(listed.documents.length, 2);
  const memories = [{ content: "Ann lives in Bonn.", isStatic: true }];
  await client.post("/v4/memories", { body: { containerTag: tag, memories } });
  const known = await call("getProfile", { containerTag: tag, query: "Bonn" });
  assert.equal(known.success, true, known.error);
  assert.deepEqual(known.profile.static, ["Ann lives in Bonn."]);
  const forgot = await call("memoryForget", { memoryContent: "Ann lives in Bonn." });
  assert.equal(forgot.success, true, forgot.error);
  assert.deepEqual((await call("getProfile", { containerTag: tag })).profile.static, []);
  const deleted = await call("documentDelete", { documentId: document.document.id });
  assert.equal(deleted.success, true, deleted.error);
  await assert.rejects(client.documents.get(document.document.id), Supermemory.NotFoundError);
}

// A server that plays the model: it says the same to everything, and keeps what it was asked.
async function playing(say, use) {
  const asked = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const piece of request) body += piece;
    asked.push(body);
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify(say(request.url)));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    return await use(`http://127.0.0.1:${server.address().port}/v1`, asked);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

const SAID = "In Bonn.";
const chat = {
  id: "1",
  object: "chat.completion",
  created: 0,
  model: "made",
  choices: [{ index: 0, finish_reason: "stop", message: { role: "assistant", content: SAID } }],
};
const told = { type: "output_text", text: SAID, annotations: [] };
const message = { type: "message", id: "m", role: "assistant", status: "completed", content: [told] };
const reply = { id: "1", object: "response", created_at: 0, model: "made", output: [message] };

async function knows(containerTag, content) {
  await client.post("/v4/memories", {
    body: { containerTag, memories: [{ content, isStatic: true }] },
  });
}

async function keeps(tag, customId, text) {
  const documents = await settled(tag, 2);
  const talk = documents.find((one) => one.customId?.includes(customId));
  assert.ok(talk, JSON.stringify(documents));
  const { content } = await client.documents.get(talk.id);
  assert.ok(content.includes(text), content);
}

// A person at a browser with a key, who lets in whoever asks: the code that the program gets.
async function letIn(address, chosen) {
  const headers = { "sec-fetch-site": "same-origin", cookie: "" };
  const visit = (url, form) =>
    fetch(new URL(url, baseUrl), {
      method: form ? "POST" : "GET",
      body: form && new URLSearchParams(form),
      headers,
      redirect: "manual",
    });
  const signedIn = await visit("/console/login", { key: apiKey });
  headers.cookie = signedIn.headers.get("set-cookie").split(";")[0];
  const asked = await visit(address);
  const page = await (await visit(asked.headers.get("location"))).text();
  const fields = [...page.matchAll(/type="hidden" name="(\w+)" value="([^"]*)"/g)];
  const form = Object.fromEntries(fields.map(([, name, value]) => [name, value.replaceAll("&#43;", "+")]));
  const done = await visit("/console/assistants/allow", { ...form, decision: "allow", ...chosen });
  return new URL(done.headers.get("location")).searchParams.get("code");
}

// What OpenCode calls with each message of a person: the first gets what is known.
async function hooked(plugin) {
  const { fetch } = globalThis;
  // It asks a registry whether there is a newer one of it; here nothing is but this machine.
  globalThis.fetch = (address, ...more) =>
    String(address).startsWith(baseUrl) ? fetch(address, ...more) : Promise.reject(new Error("away"));
  const says = async (text) => {
    const output = { message: { id: "msg_1" }, parts: [{ type: "text", text }] };
    await plugin["chat.message"]({ sessionID: "ses_1" }, output);
    return output.parts.map((one) => one.text).join("\n");
  };
  try {
    assert.ok((await says("Where does Ann live?")).includes("Ann lives in Bonn."));
    const second = await says("Remember that the heron wades.");
    assert.ok(!second.includes("Ann lives in Bonn."), second);
    assert.match(second, /supermemory/);
  } finally {
    globalThis.fetch = fetch;
  }
}

// What opencode's plug-in does when a session nears the limit of its model: hand what is known to whoever sums the
// session up, and keep the summary.
async function compacted() {
  process.env.SUPERMEMORY_API_KEY = apiKey;
  process.env.SUPERMEMORY_BASE_URL = baseUrl;
  const { SupermemoryPlugin } = await import("opencode-supermemory");
  const summed = [];
  const summary = `The user wants to know all of herons. ${"Work goes on. ".repeat(10)}`;
  const said = { info: { role: "assistant", summary: true }, parts: [{ type: "text", text: summary }] };
  const session = {
    summarize: async (given) => void summed.push(given),
    messages: async () => ({ data: [said] }),
    promptAsync: async () => {},
  };
  const provider = { list: async () => ({ data: { all: [] } }) };
  const tui = { showToast: async () => {} };
  const directory = process.env.HOME;
  const plugin = await SupermemoryPlugin({ directory, client: { provider, session, tui } });
  const given = { mode: "add", content: "Herons of this project wade.", scope: "project" };
  const { id } = JSON.parse(await plugin.tool.supermemory.execute(given));
  const { containerTags } = await client.documents.get(id);
  await settled(containerTags[0], 1);
  const about = { sessionID: "ses_9", role: "assistant", finish: true };
  const model = { providerID: "a-provider", modelID: "a-model" };
  const tokens = { input: 170_000, output: 1_000, cache: { read: 0, write: 0 } };
  const happens = (info) => plugin.event({ event: { type: "message.updated", properties: { info } } });

  await happens({ ...about, ...model, tokens });
  assert.deepEqual(summed, [{ path: { id: "ses_9" }, body: model, query: { directory } }]);
  const parts = join(directory, ".opencode", "parts");
  const [message] = await readdir(parts);
  const [part] = await readdir(join(parts, message));
  const told = JSON.parse(await readFile(join(parts, message, part), "utf8")).text;
  assert.ok(told.includes("- Herons of this project wade."), told);

  await happens({ ...about, summary: true });
  const kept = (await settled(containerTags[0], 2)).find((one) => one.metadata?.sm_capture_mode === "compaction");
  assert.equal(kept.metadata.sessionId, "ses_9");
  assert.equal((await client.documents.get(kept.id)).content, `[Session Summary]\n${summary}`.trim());
}
const scenarios = {
  // An assistant that knows the address alone, by the SDK of MCP.
  async mcp() {
    const kept = {};
    let code;
    const authProvider = {
      redirectUrl: "http://127.0.0.1:7777/callback",
      clientMetadata: { client_name: "An assistant", redirect_uris: ["http://127.0.0.1:7777/callback"] },
      state: () => "a state",
      clientInformation: () => kept.client,
      saveClientInformation: (told) => void (kept.client = told),
      tokens: () => kept.tokens,
      saveTokens: (told) => void (kept.tokens = told),
      codeVerifier: () => kept.verifier,
      saveCodeVerifier: (told) => void (kept.verifier = told),
      redirectToAuthorization: async (url) =>
        void (code = await letIn(url, { access: "write", tags: "mcp_sdk" })),
    };
    const transport = () => new StreamableHTTPClientTransport(new URL("/mcp", baseUrl), { authProvider });
    const first = transport();
    const stranger = new Client({ name: "test", version: "1" });
    await assert.rejects(stranger.connect(first), UnauthorizedError);
    await first.finishAuth(code);
    const assistant = new Client({ name: "test", version: "1" });
    await assistant.connect(transport());
    const called = async (name, given) => {
      const told = await assistant.callTool({ name, arguments: given });
      assert.ok(!told.isError, JSON.stringify(told));
      return told.structuredContent;
    };
    const text = "The heron stands in the shallow water.";
    await called("add", { content: text, custom_id: "heron", tag: "mcp_sdk" });
    assert.equal((await called("fetch", { id: "heron" })).text, text);
    const elsewhere = await assistant.callTool({ name: "add", arguments: { content: "x", tag: "other" } });
    assert.ok(elsewhere.isError);
    const before = kept.tokens.access_token;
    kept.tokens = { ...kept.tokens, access_token: "oat_stale" };
    assert.equal((await called("fetch", { id: "heron" })).text, text);
    assert.notEqual(kept.tokens.access_token, before);
    const { assistants } = await client.get("/v3/assistants");
    assert.deepEqual(assistants[0].containerTags, ["mcp_sdk"]);
    await client.delete(`/v3/assistants/${assistants[0].id}`);
    await assert.rejects(assistant.callTool({ name: "list", arguments: {} }), /invalid_grant|unknown, expired/);
  },
  async ai_sdk_tools() {
    const tools = supermemoryTools(apiKey, { baseUrl, containerTags: ["ai-sdk"] });
    await seven((name, given) => tools[name].execute(given, {}), "ai-sdk");
  },

  async openai_tools() {
    const execute = createToolCallExecutor(apiKey, { baseUrl, containerTags: ["openai"] });
    const defined = getToolDefinitions().map((one) => one.function.name);
    await seven(async (name, given) => {
      assert.ok(defined.includes(name), name);
      const call = { id: "1", type: "function" };
      const told = { name, arguments: JSON.stringify(given) };
      return JSON.parse(await execute({ ...call, function: told }));
    }, "openai");
  },

  async ai_sdk_middleware() {
    const memories = [{ content: "Ann lives in Bonn.", isStatic: true }];
    await client.post("/v4/memories", { body: { containerTag: "middle", memories } });
    const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
    const content = [{ type: "text", text: "In Bonn." }];
    const finishReason = { unified: "stop" };
    const inner = new MockLanguageModelV3({
      doGenerate: { content, finishReason, usage, warnings: [] },
    });
    const model = withSupermemory(inner, {
      containerTag: "middle",
      customId: "talk-1",
      mode: "full",
      addMemory: "always",
      apiKey,
      baseUrl,
    });
    const told = await generateText({ model, prompt: "Where does Ann live?" });
    assert.equal(told.text, "In Bonn.");
    assert.ok(JSON.stringify(inner.doGenerateCalls[0].prompt).includes("Ann lives in Bonn."));
    const kept = await settled("middle", 2);
    assert.ok(kept.some(({ customId }) => customId?.includes("talk-1")), JSON.stringify(kept));
  },

  async openai_middleware() {
    await knows("openai-middle", "Ann lives in Bonn.");
    const say = (path) => (path.endsWith("/responses") ? reply : chat);
    await playing(say, async (baseURL, asked) => {
      const model = withOpenAI(new OpenAI({ apiKey: "none", baseURL }), {
        containerTag: "openai-middle",
        customId: "talk-2",
        mode: "full",
        addMemory: "always",
        apiKey,
        baseUrl,
      });
      const messages = [{ role: "user", content: "Where does Ann live?" }];
      const done = await model.chat.completions.create({ model: "made", messages });
      assert.equal(done.choices[0].message.content, SAID);
      assert.ok(asked[0].includes("Ann lives in Bonn."), asked[0]);
      const input = "Where does Ann live today?";
      const answered = await model.responses.create({ model: "made", input });
      assert.equal(answered.output_text, SAID);
      assert.ok(asked[1].includes("Ann lives in Bonn."), asked[1]);
    });
    await keeps("openai-middle", "talk-2", "Where does Ann live");
  },

  // The processors of an agent, called as Mastra calls them, with a list of messages that takes
  // what its own takes.
  async mastra() {
    await knows("mastra", "Ann lives in Bonn.");
    const options = { containerTag: "mastra", customId: "talk-3", mode: "full", apiKey, baseUrl };
    const agent = withMastra({ id: "agent" }, options);
    const messages = [{ role: "user", content: { parts: [{ type: "text", text: "Where does Ann live?" }] } }];
    const system = [];
    const messageList = { clearSystemMessages: () => void (system.length = 0), addSystem: (text) => system.push(text) };
    for (const one of agent.inputProcessors) await one.processInput({ messages, messageList });
    assert.ok(system.join().includes("Ann lives in Bonn."), system.join());
    messages.push({ role: "assistant", content: { content: SAID } });
    for (const one of agent.outputProcessors) await one.processOutputResult({ messages });
    await keeps("mastra", "talk-3", SAID);
  },

  // Its hooks, called as VoltAgent calls them.
  async voltagent() {
    await knows("volt", "Ann lives in Bonn.");
    const config = { name: "agent", instructions: "Be short." };
    const options = { customId: "talk-4", mode: "full", apiKey, baseUrl };
    for (const more of [{}, { limit: 5, threshold: 0.1, searchMode: "hybrid", include: { chunks: true } }]) {
      const { hooks } = withVoltAgent({ agentConfig: config, containerTag: "volt", ...options, ...more });
      const messages = [{ role: "user", parts: [{ type: "text", text: "Where does Ann live?" }] }];
      const prepared = await hooks.onPrepareMessages({ messages, agent: config });
      assert.ok(JSON.stringify(prepared.messages).includes("Ann lives in Bonn."), JSON.stringify(prepared));
      await hooks.onEnd({ agent: config, context: { input: "Where does Ann live?" }, output: { text: SAID } });
    }
    await keeps("volt", "talk-4", SAID);
  },

  async claude_memory() {
    const tool = createClaudeMemoryTool(apiKey, { baseUrl, containerTags: ["claude"] });
    const does = async (command) => {
      const told = await tool.handleCommand(command);
      assert.equal(told.success, true, `${JSON.stringify(command)}: ${told.error}`);
      return told.content;
    };
    const path = "/memories/notes.md";
    const lines = Array.from({ length: 12 }, (_, n) => `Line ${n} says ${n}.`);
    await does({ command: "create", path, file_text: lines.join("\n") });
    // In a row, faster than any of them is indexed: none may be lost.
    for (let n = 0; n < 12; n++) {
      const [old_str, new_str] = [`Line ${n} says ${n}.`, `Line ${n} was edited.`];
      await does({ command: "str_replace", path, old_str, new_str });
    }
    await does({ command: "insert", path, insert_line: 1, insert_text: "Before all." });
    const expected = ["Before all.", ...lines.map((_, n) => `Line ${n} was edited.`)];
    const shown = async (at) =>
      (await does({ command: "view", path: at })).split("\n").map((one) => one.split("\t")[1]);
    assert.deepEqual(await shown(path), expected);
    await settled("claude", 1);
    assert.deepEqual(await shown(path), expected);
    assert.equal(
      (await does({ command: "view", path, view_range: [1, 1] })).trim(),
      "1\tBefore all.",
    );
    const new_path = "/memories/old/notes.md";
    await does({ command: "rename", path, new_path });
    assert.deepEqual(await shown(new_path), expected);
    assert.match(await does({ command: "view", path: "/memories" }), /- old\//);
    await does({ command: "delete", path: new_path });
    assert.match(await does({ command: "view", path: "/memories" }), /empty/);
  },

  async shell() {
    const containerTag = "npm-shell";
    const session = (more) => createBash({ apiKey, baseURL: baseUrl, containerTag, ...more });
    const told = async ({ bash }, command) => {
      const { stdout, stderr, exitCode } = await bash.exec(command);
      assert.equal(exitCode, 0, `${command}: ${stderr}`);
      return stdout;
    };
    const first = await session();
    await told(first, "mkdir -p /notes/deep; echo 'The heron fishes at dawn.' > /notes/heron.md");
    await told(first, "printf 'Deep water.' > '/notes/deep/ä (1).md'; sed -i s/dawn/noon/ /notes/heron.md");
    await told(first, "cp -r /notes /copy; mv /copy /kept; mv /kept/heron.md /heron.md");
    await settled(containerTag, 4);
    for (const where of ["", " /notes/", " /notes/heron.md"]) {
      const found = await told(first, `sgrep heron${where}`);
      assert.ok(found.includes("/notes/heron.md:The heron fishes at noon."), found);
    }

    // What a session reads is what was written last, whether it is indexed or not.
    const forgetful = await session({ cacheTtlMs: 0, eagerContent: false });
    const lines = "for n in 1 2 3 4 5 6 7 8; do echo line $n >> /log.md; done; cat /log.md";
    const appended = [1, 2, 3, 4, 5, 6, 7, 8].map((n) => `line ${n}\n`).join("");
    assert.equal(await told(forgetful, lines), appended);
    const later = await session();
    assert.equal(await told(later, "cat /log.md /heron.md"), `${appended}The heron fishes at noon.\n`);
    await told(later, "rm -r /notes /kept; rm /log.md");
    const { memories } = await client.documents.list({ containerTags: [containerTag] });
    assert.deepEqual(memories.map(({ filepath }) => filepath), ["/heron.md"]);
  },

  async command_line() {
    const env = {
      PATH: process.env.PATH,
      HOME: process.env.HOME,
      SUPERMEMORY_API_KEY: apiKey,
      SUPERMEMORY_API_URL: baseUrl,
    };
    const cli = new URL("node_modules/supermemory/bin/cli", import.meta.url).pathname;
    const does = async (...given) => {
      const { stdout } = await run(process.execPath, [cli, ...given, "--json"], { env });
      return JSON.parse(stdout);
    };
    const added = await does("add", "The heron stands in the water.", "--tag", "cli", "--id", "h");
    await settled("cli", 1);
    const listed = await does("docs", "list", "--tag", "cli");
    assert.ok(JSON.stringify(listed).includes(added.id), JSON.stringify(listed));
    await does("remember", "Ann lives in Bonn.", "--tag", "cli", "--static");
    const found = await does("search", "heron", "--tag", "cli", "--mode", "hybrid");
    assert.ok(JSON.stringify(found).includes("heron"), JSON.stringify(found));
    const profile = await does("profile", "--tag", "cli");
    assert.ok(JSON.stringify(profile).includes("Ann lives in Bonn."), JSON.stringify(profile));
    assert.ok(JSON.stringify(await does("tags", "list")).includes("cli"));
    const who = await does("whoami");
    assert.ok(JSON.stringify(who).includes("full"), JSON.stringify(who));
    const status = await does("status");
    assert.ok(Object.values(status).length > 0, JSON.stringify(status));
    await does("forget", "--tag", "cli", "--content", "Ann lives in Bonn.");
    const after = await does("profile", "--tag", "cli");
    assert.ok(!JSON.stringify(after).includes("Ann lives in Bonn."), JSON.stringify(after));
  },

  // Its start-up sends PATCH /v3/settings with `shouldLLMFilter`, and nobody handles a refusal.
  async opencode() {
    const refused = [];
    process.on("unhandledRejection", (error) => refused.push(String(error)));
    process.env.SUPERMEMORY_API_KEY = apiKey;
    process.env.SUPERMEMORY_BASE_URL = baseUrl;
    const { SupermemoryPlugin } = await import("opencode-supermemory");
    const provider = { list: async () => ({ data: { all: [] } }) };
    const plugin = await SupermemoryPlugin({ directory: process.env.HOME, client: { provider } });
    const does = async (given) => {
      const told = JSON.parse(await plugin.tool.supermemory.execute(given));
      assert.equal(told.success, true, JSON.stringify(told));
      return told;
    };
    const added = await does({ mode: "add", content: "The heron wades.", scope: "project" });
    const { containerTags } = await client.documents.get(added.id);
    await settled(containerTags[0], 1);
    const found = await does({ mode: "search", query: "heron" });
    assert.ok(JSON.stringify(found).includes("The heron wades."), JSON.stringify(found));
    assert.ok((await does({ mode: "list", scope: "project" })).count > 0);
    const personal = await does({ mode: "add", content: "Ann wades.", scope: "user" });
    const [own] = (await client.documents.get(personal.id)).containerTags;
    await settled(own, 1);
    // Its profile asks for the metadata that it gives to what it adds.
    const memories = [{ content: "Ann lives in Bonn.", isStatic: true, metadata: { sm_scope: "personal" } }];
    await client.post("/v4/memories", { body: { containerTag: own, memories } });
    assert.ok(JSON.stringify(await does({ mode: "profile" })).includes("Ann lives in Bonn."));
    await hooked(plugin);
    while (!(await client.settings.get()).shouldLLMFilter) assert.deepEqual(refused, []);
    assert.deepEqual(refused, []);
  },
  async compaction() {
    await compacted();
  },
};

const [name] = process.argv.slice(2);
if (name === undefined) console.log(Object.keys(scenarios).join(" "));
else {
  await scenarios[name]();
  process.exit(0);
}
