// What the libraries over ioredis share: a connection per server, and what became of their scripts.
//
// As it comes: ioredis' own limits. It has none for an answer; what was sent when a connection broke
// is sent again, and what cannot be sent waits for twenty connections that fail. Safe: the client
// timeout for every connection and command; nothing is sent again, and nothing waits to be sent.
"use strict";

const { Redis } = require("ioredis");

const { monotonicNs } = require("./answers.js");

const PENDING = "pending";
const UNSENT = "unsent";

// The servers of one client, and the rounds in which a library asks them. In a round it gives each
// server, the first one first, a script with a key and what it takes: last the time to live where it
// is to set the key, else a value of 32 hexadecimal digits. It answers 1 where it did so, else 0.
class Servers {
  #ofKey = new Map(); // key → its rounds since ``begin``
  #noted = new WeakSet(); // commands; ioredis may send one again

  constructor({ nodes, timeoutMs, safe }) {
    const limited = {
      connectTimeout: timeoutMs,
      commandTimeout: timeoutMs,
      maxRetriesPerRequest: 0,
      autoResendUnfulfilledCommands: false,
      enableOfflineQueue: false,
    };
    this.quorum = Math.floor(nodes.length / 2) + 1;
    this.clients = nodes.map((node, server) => {
      const client = new Redis({ ...node, ...(safe ? limited : {}) });
      client.on("error", () => {}); // each command says so too
      const send = client.sendCommand.bind(client);
      client.sendCommand = (command, stream) => {
        this.#note(server, command);
        return send(command, stream);
      };
      return client;
    });
  }

  // Returns when each server is connected or cannot be, or after that time.
  async ready(limitMs) {
    const one = (client) =>
      new Promise((done) => {
        client.once("ready", done);
        client.once("close", done);
        setTimeout(done, limitMs);
      });
    await Promise.all(this.clients.map(one));
  }

  close() {
    for (const client of this.clients) {
      client.disconnect();
    }
  }

  // Forgets what there was of a key.
  begin(key) {
    this.#ofKey.set(key, []);
  }

  // The number of rounds so far, for ``asked`` and ``missing``.
  mark(key) {
    return this.#rounds(key).length;
  }

  asked(key, mark) {
    return this.#rounds(key).length > mark;
  }

  // When the last round that was to set the key began, before anything of it was sent.
  beganNs(key) {
    return this.#rounds(key).findLast((round) => round.sets).beganNs;
  }

  nothingSent(key) {
    return this.#rounds(key).every((round) => round.answers.every((said) => said === UNSENT));
  }

  // Whether a quorum refused the last round that was to set the key.
  refused(key) {
    const round = this.#rounds(key).findLast((each) => each.sets);
    return round.answers.filter((said) => said === 0).length >= this.quorum;
  }

  // Whether so many servers may have the key as set since ``begin`` that together they are a quorum.
  mayHave(key) {
    const having = new Set();
    for (const { sets, answers } of this.#rounds(key)) {
      answers.forEach((said, server) => {
        if (sets && said !== 0 && said !== UNSENT) {
          having.add(server);
        } else if (!sets && Number.isInteger(said)) {
          having.delete(server);
        }
      });
    }
    return having.size >= this.quorum;
  }

  // Whether so many servers answered every round since ``mark`` with 0 that the others are none.
  missing(key, mark, sets) {
    const rounds = this.#rounds(key).slice(mark).filter((round) => round.sets === sets);
    const without = this.clients.filter((_, server) =>
      rounds.every((round) => round.answers[server] === 0),
    );
    return rounds.length > 0 && this.clients.length - without.length < this.quorum;
  }

  #rounds(key) {
    if (!this.#ofKey.has(key)) {
      this.begin(key);
    }
    return this.#ofKey.get(key);
  }

  #note(server, command) {
    if (!/^eval(sha)?$/.test(command.name) || this.#noted.has(command)) {
      return;
    }
    this.#noted.add(command);
    const [, , key, ...values] = command.args; // after the script and the number of keys
    const rounds = this.#rounds(String(key));
    const sets = /^\d{1,15}$/.test(values.at(-1)); // else it is the value that the key has
    if (rounds.length === 0 || (server === 0 && !rounds.at(-1).unknownScript)) {
      const answers = this.clients.map(() => PENDING);
      rounds.push({ beganNs: monotonicNs(), sets, answers });
    }
    const round = rounds.at(-1);
    const { resolve, reject } = command;
    if (server === 0) {
      round.unknownScript = false;
    }
    command.resolve = (value) => {
      round.answers[server] = value;
      return resolve(value);
    };
    command.reject = (error) => {
      // The library gives it the text of the script then, in the same round.
      const again = error.message.startsWith("NOSCRIPT");
      round.unknownScript ||= again && server === 0;
      const unsent = error.message.startsWith("Stream isn't writeable");
      round.answers[server] = again ? PENDING : unsent ? UNSENT : error;
      reject(error);
    };
  }
}

module.exports = { Servers };
