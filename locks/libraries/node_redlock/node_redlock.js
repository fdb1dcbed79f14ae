// The Redlock of npm's redlock, in its last stable version and in the beta of the next one, and of
// @sesamecare-oss/redlock, over ioredis, as their READMEs show it.
"use strict";

const Stable = require("redlock");
const beta = require("redlock-5");
const sesamecare = require("@sesamecare-oss/redlock");

const { NOT_HELD, RELEASED, denied, granted, oneLine, unknown } = require("./answers.js");
const { Servers } = require("./redis.js");

// The defaults of all three.
const RETRIES = 10;
const PAUSE_MS = 200;
const driftMs = (ttlMs) => Math.round(0.01 * ttlMs) + 2;

const milliseconds = (seconds) => Math.round(1000 * seconds);

class Client {
  // ``Refusal`` is the error that says that the operation failed.
  static async connect(Redlock, Refusal, setup) {
    const client = new this(Redlock, Refusal, setup);
    if (setup.safe) {
      await client.servers.ready(setup.timeoutMs);
    }
    return client;
  }

  constructor(Redlock, Refusal, setup) {
    this.Redlock = Redlock;
    this.Refusal = Refusal;
    this.safe = setup.safe;
    this.tell = setup.tell;
    this.servers = new Servers(setup);
    this.redlock = new Redlock(this.servers.clients, this.safe ? { retryCount: 0 } : {});
    this.holds = new Map(); // hold → what its acquire got
  }

  // A wait that is longer than a call of the library asks again.
  async acquire(key, hold, ttlS, waitS) {
    const overMs = performance.now() + 1000 * waitS;
    const ttlMs = milliseconds(ttlS);
    let unsure;
    for (;;) {
      this.servers.begin(key);
      try {
        const leftMs = overMs - performance.now();
        this.holds.set(hold, await this.take(key, hold, ttlMs, waitS > 0 ? leftMs : 0));
        return this.promised(key, ttlMs);
      } catch (error) {
        if (!(error instanceof this.Refusal)) {
          throw error;
        }
        const said = this.refused(key, waitS, error);
        unsure = said.said === "unknown" ? said : unsure;
        if (performance.now() >= overMs) {
          return unsure ?? said;
        }
      }
    }
  }

  async release(key, hold) {
    const lock = this.holds.get(hold);
    if (lock === undefined) {
      return NOT_HELD;
    }
    this.holds.delete(hold);
    const mark = this.servers.mark(key);
    try {
      await this.giveBack(lock);
      return RELEASED;
    } catch (error) {
      if (!(error instanceof this.Refusal)) {
        throw error;
      }
      return this.servers.missing(key, mark, false) ? NOT_HELD : unknown(error);
    }
  }

  async extend(key, hold, ttlS) {
    const lock = this.holds.get(hold);
    if (lock === undefined) {
      return NOT_HELD;
    }
    const ttlMs = milliseconds(ttlS);
    const mark = this.servers.mark(key);
    try {
      this.holds.set(hold, await this.redlock.extend(lock, ttlMs));
      return this.promised(key, ttlMs);
    } catch (error) {
      if (!(error instanceof this.Refusal)) {
        throw error;
      }
      // It asks no server when it believes that the lock has expired.
      const over = !this.servers.asked(key, mark) || this.servers.missing(key, mark, true);
      return over ? NOT_HELD : unknown(error);
    }
  }

  close() {
    this.servers.close();
  }

  take(key, _hold, ttlMs, leftMs) {
    return new this.Redlock(this.servers.clients, this.retries(leftMs)).acquire([key], ttlMs);
  }

  giveBack(lock) {
    return this.redlock.release(lock);
  }

  // None for one try; else the library's own, or safe as many as fit.
  retries(leftMs) {
    if (leftMs <= 0) {
      return { retryCount: 0 };
    }
    return this.safe ? { retryCount: Math.min(RETRIES, Math.ceil(leftMs / PAUSE_MS)) } : {};
  }

  promised(key, ttlMs) {
    const beganNs = this.servers.beganNs(key);
    return granted(beganNs, beganNs + 1e6 * (ttlMs - driftMs(ttlMs)));
  }

  refused(key, waitS, error) {
    if (this.servers.nothingSent(key)) {
      return denied(`no-effect: ${oneLine(error)}`);
    }
    if (this.servers.mayHave(key)) {
      return unknown(error);
    }
    const held = waitS === 0 && this.servers.refused(key);
    return denied(`${held ? "held" : "gave-up"}: ${oneLine(error)}`);
  }
}

// ``using``, which extends the lock by itself; the routine ends when the hold is given back.
class Using extends Client {
  #holdOf = new Map(); // key → hold

  constructor(...how) {
    super(...how);
    const extend = this.redlock.extend.bind(this.redlock);
    this.redlock.extend = async (lock, ttlMs, ...settings) => {
      const next = await extend(lock, ttlMs, ...settings);
      const [key] = lock.resources;
      const { sent_ns: sentNs, valid_until_ns: untilNs } = this.promised(key, ttlMs);
      this.tell.extended(this.#holdOf.get(key), sentNs, untilNs);
      return next;
    };
  }

  take(key, hold, ttlMs, leftMs) {
    return new Promise((resolve, reject) => {
      const session = {};
      const left = new Promise((leave) => {
        session.leave = leave;
      });
      session.done = this.redlock.using([key], ttlMs, this.retries(leftMs), async (signal) => {
        signal.addEventListener("abort", () => this.tell.lost(hold));
        this.#holdOf.set(key, hold);
        resolve(session);
        await left;
      });
      session.done.catch(reject); // once it was entered, ``giveBack`` has the error
    });
  }

  giveBack(session) {
    session.leave();
    return session.done;
  }

  close() {
    for (const session of this.holds.values()) {
      session.leave();
    }
    super.close();
  }
}

function kind(library, Class, Redlock, Refusal) {
  return { library, connect: (setup) => Class.connect(Redlock, Refusal, setup) };
}

exports.kinds = {
  "node-redlock": kind("redlock", Client, Stable, Stable.LockError),
  "node-redlock-5": kind("redlock-5", Client, beta.default, beta.ExecutionError),
  "node-redlock-5-using": kind("redlock-5", Using, beta.default, beta.ExecutionError),
  "sesamecare-redlock": kind(
    "@sesamecare-oss/redlock",
    Client,
    sesamecare.Redlock,
    sesamecare.ExecutionError,
  ),
  "sesamecare-redlock-using": kind(
    "@sesamecare-oss/redlock",
    Using,
    sesamecare.Redlock,
    sesamecare.ExecutionError,
  ),
};
