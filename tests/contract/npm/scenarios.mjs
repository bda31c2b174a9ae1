// What users of the npm client do, with nothing but its base URL changed.
// node scenarios.mjs NAME, with BASE_URL, API_KEY, PREFIXED_URL, SITE and FREE_KEY in the
// environment.
import assert from "node:assert/strict";
import { createReadStream, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Supermemory, { toFile } from "supermemory";

const { BASE_URL: baseURL, API_KEY: apiKey, PREFIXED_URL: prefixedURL } = process.env;
const { SITE: startUrl, FREE_KEY: freeKey } = process.env;
const client = new Supermemory({ baseURL, apiKey, maxRetries: 0 });

async function done(id, on = client) {
  for (;;) {
    const document = await on.documents.get(id, { query: { wait: 10 } });
    if (document.status === "done") return document;
    assert.notEqual(document.status, "failed", document.errorMessage);
  }
}

async function say(conversationId, ...said) {
  const messages = said.map(([role, content]) => ({ role, content }));
  return client.post("/v4/conversations", { body: { conversationId, messages } });
}

async function crawled(tag, holds) {
  for (;;) {
    const { memories } = await client.documents.list({ containerTags: [tag] });
    for (const { status } of memories) assert.notEqual(status, "failed");
    const done = memories.filter(({ status }) => status === "done");
    if (done.length === memories.length && (await holds(memories))) {
      return new Map(memories.map((one) => [one.title, one]));
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const scenarios = {
  async passages_where_their_offsets_say() {
    const content = "The heron 🪶🪶🪶 fishes at 🌅 dawn.\n\n".repeat(100);
    await done((await client.add({ content, containerTag: "offsets" })).id);
    const { results } = await client.search.documents({
      q: "heron fishes",
      containerTags: ["offsets"],
      includeFullDocs: true,
    });
    for (const { start, end, content: passage } of results[0].chunks) {
      assert.equal([...results[0].content].slice(start, end).join(""), passage);
    }
    assert.ok(results[0].chunks.some(({ start }) => start > 0));
  },
  async memories_and_profile() {
    const memories = [
      { content: "Ann drinks green tea.", isStatic: true },
      { content: "Ann waits for a heron." },
    ];
    const added = await client.post("/v4/memories", { body: { containerTag: "ann", memories } });
    const id = added.memories[0].id;
    const known = await client.profile({ containerTag: "ann", q: "green tea", threshold: 0.3 });
    assert.deepEqual(known.profile.static, ["Ann drinks green tea."]);
    assert.deepEqual(known.profile.dynamic, ["Ann waits for a heron."]);
    assert.equal(known.searchResults.total, 1);
    const newContent = "Ann drinks black tea.";
    const changed = await client.memories.updateMemory({ containerTag: "ann", id, newContent });
    assert.deepEqual([changed.version, changed.parentMemoryId], [2, id]);
    const found = await client.search.memories({
      q: "black tea",
      containerTag: "ann",
      threshold: 0.3,
      include: { relatedMemories: true },
    });
    assert.equal(found.results[0].memory, newContent);
    assert.equal(found.results[0].context.parents[0].memory, "Ann drinks green tea.");
    const gone = await client.memories.forget({ containerTag: "ann", content: newContent });
    assert.equal(gone.forgotten, true);
    const after = await client.profile({ containerTag: "ann" });
    assert.deepEqual(after.profile.static, []);
    await assert.rejects(
      client.memories.forget({ containerTag: "ann", id }),
      Supermemory.ConflictError,
    );
  },

  async add_and_poll() {
    const added = await client.add({
      content: "# The heron\n\nHerons eat frogs.",
      customId: "notes/heron 1",
      containerTag: "birds",
      metadata: { year: 2026, draft: true },
    });
    assert.equal(added.status, "queued");
    const document = await done(added.id);
    assert.equal(document.title, "The heron");
    assert.deepEqual(document.containerTags, ["birds"]);
    assert.deepEqual(document.metadata, { year: 2026, draft: true });
    const found = await client.search.documents({ q: "frogs", containerTags: ["birds"] });
    assert.equal(found.results[0].documentId, added.id);
    assert.match(found.results[0].chunks[0].content, /frogs/);
  },

  async custom_id_with_a_slash() {
    const id = "a/b c/ü?#%2F";
    const added = await client.documents.add({ content: "one", customId: id });
    assert.equal((await client.documents.get(id)).id, added.id);
    assert.equal((await client.documents.update(id, { metadata: { a: 1 } })).id, added.id);
    assert.equal(await client.documents.delete(id), null);
    await assert.rejects(client.documents.get(added.id), Supermemory.NotFoundError);
  },

  async text_that_grows_in_three_ways() {
    const lines = ["user: Hi", "assistant: Hello", "user: What do herons eat?", "assistant: Frogs."];
    const send = async (text) => done((await client.add({ content: text, customId: "chat" })).id);
    await send(lines.slice(0, 2).join("\n"));
    assert.equal((await send(lines.slice(0, 3).join("\n"))).content, lines.slice(0, 3).join("\n"));
    assert.equal((await send(lines[3])).content, lines.join("\n"));
    const edited = lines.with(3, "assistant: Frogs and mice.").join("\n");
    assert.equal((await send(edited)).content, edited);
  },

  async conversation_appended_in_three_ways() {
    const hello = [["user", "Hi"], ["assistant", "Hello"]];
    const { id } = await say("talk/1", ...hello);
    await say("talk/1", ...hello, ["user", "What do herons eat?"]); // all of it
    await say("talk/1", ["assistant", "Frogs."]); // only what is new
    await say("talk/1", ["assistant", "Frogs."], ["user", "Thanks"]); // with an overlap
    assert.equal(
      (await done(id)).content,
      "user: Hi\n\nassistant: Hello\n\nuser: What do herons eat?\n\n" +
        "assistant: Frogs.\n\nuser: Thanks",
    );
  },

  async patch() {
    const { id } = await client.documents.add({ content: "Herons eat frogs.", metadata: { a: 1 } });
    await done(id);
    const labelled = await client.documents.update(id, { metadata: { b: 2 } });
    assert.equal(labelled.status, "done");
    assert.deepEqual((await client.documents.get(id)).metadata, { b: 2 });
    assert.equal((await client.documents.update(id, {})).status, "done");
    const changed = await client.documents.update(id, { content: "Storks eat mice." });
    assert.deepEqual(changed, { id, status: "queued" });
    assert.equal((await done(id)).content, "Storks eat mice.");
  },

  async a_buffer_is_told_how_to_go() {
    for (const size of [10, 2000]) {
      await assert.rejects(
        client.documents.uploadFile({ file: Buffer.alloc(size, "a"), containerTag: "buffer" }),
        (error) => error instanceof Supermemory.BadRequestError && /toFile/.test(error.message),
      );
    }
  },

  async uploads_of_several_kinds() {
    const path = join(tmpdir(), `herons-${process.pid}.md`);
    writeFileSync(path, "# Herons\n\nThey wade.");
    const text = await toFile(Buffer.from("Notes on herons."), "notes.txt");
    const files = {
      bytes: text,
      stream: createReadStream(path),
      web: new File(["name,food\nheron,frogs"], "birds.csv", { type: "text/csv" }),
      response: new Response("<h1>Herons</h1><p>They fish.</p>", {
        headers: { "content-type": "text/html" },
      }),
    };
    const expected = { bytes: /Notes/, stream: /wade/, web: /frogs/, response: /They fish/ };
    for (const [name, file] of Object.entries(files)) {
      const labels = { containerTags: '["birds","files"]', metadata: '{"legs":2}', customId: name };
      const written = await client.documents.uploadFile({ file, ...labels });
      assert.equal(written.status, "queued");
      const document = await done(name);
      assert.match(document.content, expected[name]);
      assert.deepEqual(document.containerTags, ["birds", "files"]);
      assert.deepEqual(document.metadata, { legs: 2 });
    }
  },

  async list_with_pages_and_filters() {
    for (const year of [2020, 2021, 2026]) {
      await client.add({ content: `of ${year}`, containerTag: "a", metadata: { year } });
    }
    const query = { containerTags: ["a"], limit: 2, order: "asc", includeContent: true };
    const first = await client.documents.list({ ...query, page: 1 });
    const second = await client.documents.list({ ...query, page: "2" });
    const all = [...first.memories, ...second.memories].map((memory) => memory.content);
    assert.deepEqual(all, ["of 2020", "of 2021", "of 2026"]);
    assert.deepEqual(second.pagination, {
      currentPage: 2, limit: 2, totalItems: 3, totalPages: 2,
    });
    const late = { key: "year", value: "2021", filterType: "numeric", numericOperator: ">=" };
    for (const filters of [{ AND: [late] }, JSON.stringify({ AND: [late] })]) {
      assert.equal((await client.documents.list({ filters })).memories.length, 2);
    }
    await assert.rejects(
      client.documents.list({ filters: { AND: [{ ...late, filterType: "no such" }] } }),
      Supermemory.BadRequestError,
    );
    const working = await client.documents.listProcessing({
      query: { containerTags: "a", view: "pending" },
    });
    assert.ok(working.totalCount <= 3);
  },

  async batch_and_bulk_delete() {
    const batch = await client.documents.batchAdd({
      documents: [{ content: "one" }, { content: "two", customId: "2" }, { content: "" }],
      containerTag: "a",
    });
    assert.deepEqual(batch.results.map((result) => result.status), ["queued", "queued", "error"]);
    assert.deepEqual([batch.success, batch.failed], [2, 1]);
    const ids = [batch.results[0].id, "nobody"];
    const gone = await client.documents.deleteBulk({ ids });
    assert.equal(gone.deletedCount, 1);
    assert.deepEqual(gone.errors, [{ id: "nobody", error: "Document not found" }]);
    const rest = await client.documents.deleteBulk({ containerTags: ["a"] });
    assert.deepEqual([rest.success, rest.deletedCount], [true, 1]);
    assert.equal((await client.documents.list({})).memories.length, 0);
  },

  async settings() {
    const { updated } = await client.settings.update({ filterPrompt: "x", githubClientSecret: "s" });
    assert.equal(updated.filterPrompt, "x");
    const settings = await client.settings.get();
    assert.notEqual(settings.githubClientSecret, "s");
    assert.equal(settings.shouldLLMFilter, false);
  },

  async errors_become_the_right_classes() {
    await client.add({ content: "a", customId: "x", containerTag: "a" });
    await client.add({ content: "b", customId: "x", containerTag: "b" });
    const scoped = await client.post("/v3/auth/scoped-key", { body: { containerTag: "a" } });
    const other = new Supermemory({ baseURL, apiKey: scoped.key, maxRetries: 0 });
    const stranger = new Supermemory({ baseURL, apiKey: "My API Key", maxRetries: 0 });
    const refused = [
      [() => client.add({ content: "" }), Supermemory.BadRequestError, 400],
      [() => client.add({ content: "x", metadata: { a: { b: 1 } } }), Supermemory.BadRequestError, 400],
      [() => stranger.documents.list({}), Supermemory.AuthenticationError, 401],
      [() => other.settings.update({}), Supermemory.PermissionDeniedError, 403],
      [() => client.documents.get("nobody"), Supermemory.NotFoundError, 404],
      [() => client.documents.get("x"), Supermemory.ConflictError, 409],
    ];
    for (const [call, kind, status] of refused) {
      const error = await call().then(() => assert.fail(`no ${status}`), (found) => found);
      assert.ok(error instanceof kind, `${status}: ${error}`);
      assert.equal(error.status, status);
      assert.equal(typeof error.error.error, "string");
      assert.ok(error.headers.get("x-request-id"));
    }
  },

  async a_limited_request_is_repeated_by_the_client() {
    const limit = { containerTag: "a", rateLimitMax: 2, rateLimitTimeWindow: 1000 };
    const { key } = await client.post("/v3/auth/scoped-key", { body: limit });
    const seen = [];
    const slow = new Supermemory({
      baseURL,
      apiKey: key,
      maxRetries: 3,
      fetch: async (...request) => {
        const answer = await fetch(...request);
        seen.push(answer.status);
        return answer;
      },
    });
    for (let n = 0; n < 3; n += 1) await slow.documents.list({});
    assert.equal(seen.filter((status) => status === 200).length, 3);
    assert.ok(seen.includes(429), `${seen}`);
  },

  async a_site_becomes_documents_and_follows() {
    const excludeItems = { urlPatterns: ["*/admin*"] };
    await client.settings.update({ shouldLLMFilter: false, excludeItems });
    const metadata = { startUrl };
    const marsh = { containerTags: ["marsh"] };
    const { id } = await client.connections.create("web-crawler", { ...marsh, metadata });
    const found = await crawled("marsh", (pages) => pages.length === 2);
    assert.deepEqual([...found.keys()].sort(), ["Heron", "Marsh"]);
    for (const { type } of found.values()) assert.equal(type, "webpage");
    const heron = await client.documents.get(found.get("Heron").id);
    assert.equal(heron.url, `${startUrl}heron`);
    const [hit] = (await client.search.documents({ q: "frogs", ...marsh })).results;
    assert.equal(hit.documentId, heron.id);
    const listed = await client.connections.listDocuments("web-crawler", marsh);
    assert.deepEqual(listed.map(({ id }) => id).sort(), [...found.values()].map(({ id }) => id).sort());
    assert.deepEqual(await client.connections.list(marsh).then((all) => all.map(({ id }) => id)), [id]);
    assert.equal((await client.connections.getByTag("web-crawler", marsh)).id, id);

    assert.equal((await fetch(`${startUrl}edit`)).status, 200);
    assert.ok(await client.connections.import("web-crawler", marsh));
    await crawled("marsh", async () => /mice/.test((await client.documents.get(heron.id)).content));

    await client.connections.deleteByID(id, { deleteDocuments: "false" });
    await assert.rejects(client.connections.getByID(id), Supermemory.NotFoundError);
    assert.equal((await client.documents.list(marsh)).memories.length, 2);
    const fen = { containerTags: ["fen"] };
    const second = await client.connections.create("web-crawler", { ...fen, metadata });
    await crawled("fen", (pages) => pages.length === 2);
    await client.connections.deleteByProvider("web-crawler", fen);
    await assert.rejects(client.connections.getByID(second.id), Supermemory.NotFoundError);
    assert.equal((await client.documents.list(fen)).memories.length, 0);
    assert.equal((await client.documents.list(marsh)).memories.length, 2);
    const third = await client.connections.create("web-crawler", { ...fen, metadata });
    await crawled("fen", (pages) => pages.length === 2);
    await client.connections.deleteByID(third.id);
    assert.equal((await client.documents.list(fen)).memories.length, 0);
  },

  async a_crawl_has_its_gates() {
    const metadata = { startUrl };
    const free = new Supermemory({ baseURL, apiKey: freeKey, maxRetries: 0 });
    await assert.rejects(
      free.connections.create("web-crawler", { containerTags: ["marsh"], metadata }),
      Supermemory.PermissionDeniedError,
    );
    for (const wrong of [{}, { startUrl: "ftp://marsh.test/" }, { startUrl: "http://10.0.0.1/" }]) {
      await assert.rejects(
        client.connections.create("web-crawler", { containerTags: ["marsh"], metadata: wrong }),
        (error) => error instanceof Supermemory.BadRequestError && /startUrl/.test(error.message),
      );
    }
    assert.deepEqual(await client.connections.list({}), []);
  },

  async a_base_url_with_a_path() {
    const behind = new Supermemory({ baseURL: prefixedURL, apiKey, maxRetries: 0 });
    const { id } = await behind.add({ content: "x", customId: "a/b" });
    assert.equal((await behind.documents.get("a/b")).id, id);
    assert.equal((await client.documents.get(id)).customId, "a/b");
  },

  async a_local_server() {
    for (const url of [baseURL, prefixedURL]) {
      const local = await Supermemory.local({ baseURL: url, apiKey });
      assert.equal((await local.documents.list({})).memories.length, 0);
    }
    delete process.env.SUPERMEMORY_API_KEY;
    const nobody = await Supermemory.local({ baseURL, maxRetries: 0 });
    await assert.rejects(nobody.documents.list({}), Supermemory.AuthenticationError);
  },
};

const [, , name] = process.argv;
if (name === undefined) console.log(Object.keys(scenarios).join("\n"));
else await scenarios[name]();
