// One service of `emulate` on loopback. Its only argument is JSON: {service, port, baseUrl, seed}.
// Says "ready", then "reset" each time it is told to by a line. Ends with its standard input, so
// that it never outlives the test that started it.
import { createInterface } from "node:readline";
import { createEmulator } from "emulate";

const emulator = await createEmulator(JSON.parse(process.argv[2]));
console.log("ready");
const lines = createInterface({ input: process.stdin });
lines.on("line", () => {
  emulator.reset();
  console.log("reset");
});
lines.on("close", () => process.exit(0));
