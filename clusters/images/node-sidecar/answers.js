// What is said to a request (docs/sidecar.md). Times are nanoseconds of CLOCK_MONOTONIC.
"use strict";

// A number is exact for the first 104 days of a machine, then to a few nanoseconds.
const monotonicNs = () => Number(process.hrtime.bigint());

const oneLine = (error) => `${error.name}: ${error.message}`.split(/\s+/).join(" ").trim();

module.exports = {
  monotonicNs,
  oneLine,
  RELEASED: { said: "released" },
  NOT_HELD: { said: "not-held" },
  denied: (reason) => ({ said: "denied", reason }),
  unknown: (error) => ({ said: "unknown", reason: oneLine(error) }),
  granted: (sentNs, validUntilNs) => ({
    said: "granted",
    sent_ns: sentNs,
    valid_until_ns: validUntilNs,
    fence: null,
  }),
};
