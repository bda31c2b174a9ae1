// The client's own tests against a live service: as much of jest as they use, and nothing skipped.
//
//   node suite.mjs FILE         prints the names of its tests as JSON
//   node suite.mjs FILE NAME    runs that one; its failure is the exit code's and standard error's

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const [file, wanted] = process.argv.slice(2);
const tests = new Map();

const define = (name, body) => tests.set(name, body);
globalThis.describe = (_, body) => body();
globalThis.test = Object.assign(define, { skip: define });
globalThis.expect = (value) => ({
  toBe: (other) => assert.ok(Object.is(value, other), "not the same"),
  toBeInstanceOf: (type) => assert.ok(value instanceof type, `no ${type.name}`),
  not: { toBeInstanceOf: (type) => assert.ok(!(value instanceof type), `a ${type.name}`) },
  rejects: {
    toThrow: (type) =>
      value.then(
        () => assert.fail("nothing was thrown"),
        (error) => assert.ok(error instanceof type, `${error}`),
      ),
  },
});

await import(pathToFileURL(file));
if (wanted === undefined) {
  console.log(JSON.stringify([...tests.keys()]));
} else {
  assert.ok(tests.has(wanted), `there is no test ${wanted}`);
  await tests.get(wanted)();
}
