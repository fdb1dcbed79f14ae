#!/usr/bin/node
// The sidecar of the Node libraries: speaks docs/sidecar.md with one worker process of the bench.
//
// It is given the name of a lock and, in its environment, where the worker listens. It connects,
// says hello, and serves until that connection ends; then it ends at once, as if killed. The calls
// of a client run one after the other, those of different clients beside each other, all in Node's
// one thread.
//
// Guarantees: one answer per request; what a library throws and its client does not map is unknown,
// in the library's words. Does not guarantee that a call ends.
"use strict";

const fs = require("node:fs");
const net = require("node:net");
const path = require("node:path");

const { NOT_HELD, RELEASED, granted, monotonicNs, oneLine, unknown } = require("./answers.js");

const PROTOCOL = 1;
// In the environment: the worker's address, and the word that it knows its own sidecar by.
const WORKER = "LOCKBENCH_SIDECAR_WORKER";
const WORD = "LOCKBENCH_SIDECAR_WORD";

// Grants whatever is asked, so that the sidecar's own cost can be measured.
const nothing = {
  acquire: () => granted(1, 2),
  release: () => RELEASED,
  extend: () => NOT_HELD,
  close: () => {},
};

// All locks, by the name that the bench calls them: the package whose version is told, and how a
// client is made. Each file of a library exports its own.
const kinds = { nothing: { library: "ioredis", connect: () => nothing } };
for (const file of fs.readdirSync(__dirname)) {
  if (file.endsWith(".js") && file !== path.basename(__filename)) {
    Object.assign(kinds, require(path.join(__dirname, file)).kinds);
  }
}

function version(library) {
  const file = path.join(__dirname, "node_modules", library, "package.json");
  return JSON.parse(fs.readFileSync(file, "utf8")).version.replace(/^v/, "");
}

function main(lock) {
  if (!Object.hasOwn(kinds, lock)) {
    console.error("usage: node-sidecar LOCK");
    process.exit(2);
  }
  const { library, connect } = kinds[lock];
  const [, host, port] = process.env[WORKER].match(/^(.*):(\d+)$/);
  const worker = net.connect({ host, port: Number(port), noDelay: true });
  const write = (message) => worker.write(`${JSON.stringify(message)}\n`);
  const seats = new Map(); // client → what it is, and its last call
  let rest = "";

  worker.setEncoding("utf8");
  worker.on("connect", () =>
    write({
      hello: PROTOCOL,
      library,
      version: version(library),
      word: process.env[WORD],
      now_ns: monotonicNs(),
    }),
  );
  worker.on("error", (error) => console.error(oneLine(error)));
  worker.on("close", () => process.exit(0));
  worker.on("data", (chunk) => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      take(JSON.parse(line));
    }
  });

  function take(asked) {
    if (asked.call === "ping") {
      write({ id: asked.id, said: "pong" });
      return;
    }
    if (asked.call === "open") {
      seats.set(asked.client, { last: Promise.resolve() });
    }
    const seat = seats.get(asked.client);
    seat.last = seat.last
      .then(() => carryOut(seat, asked))
      .then((said) => write({ id: asked.id, ...said }));
    if (asked.call === "close") {
      seats.delete(asked.client);
    }
  }

  async function carryOut(seat, asked) {
    try {
      switch (asked.call) {
        case "open":
          seat.client = await connect({
            nodes: asked.nodes.map(([host, port]) => ({ host, port })),
            timeoutMs: 1000 * asked.timeout_s,
            safe: asked.safe,
            tell: telling(asked.client),
          });
          return { said: "opened" };
        case "acquire":
          return await seat.client.acquire(asked.key, asked.hold, asked.ttl_s, asked.wait_s);
        case "release":
          return await seat.client.release(asked.key, asked.hold);
        case "extend":
          return await seat.client.extend(asked.key, asked.hold, asked.ttl_s);
        default:
          seat.client.close();
          return { said: "closed" };
      }
    } catch (error) {
      return asked.call === "open" ? { said: "failed", reason: oneLine(error) } : unknown(error);
    }
  }

  // Where a client reports what happens to a hold in the background.
  function telling(client) {
    return {
      extended: (hold, sentNs, validUntilNs) =>
        write({
          event: "extended",
          client,
          hold,
          sent_ns: sentNs,
          acknowledged_ns: monotonicNs(),
          valid_until_ns: validUntilNs,
        }),
      lost: (hold) => write({ event: "lost", client, hold }),
    };
  }
}

main(process.argv[2]);
