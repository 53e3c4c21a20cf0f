// What every adapter of a Node.js peer shares; the same words and loads as protocol.py.
import { once } from "node:events";
import { createRequire } from "node:module";
import path from "node:path";
import process from "node:process";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";

const PROGRESS_EVERY = 20;
const EMPTY = {
  jobs: 0, first: 0, payload: 50, kind: "noop", delay: 0, queues: 1, priorities: 1, clients: 1,
  calls: 0, gap_from: 0, gap_to: 0, chunk: 0, rate: 0, slots: 0, limit: 0, keys: 0, latency: false,
};

export const load = { ...EMPTY, ...JSON.parse(process.argv[3] ?? "{}") };
export const dsn = process.env.BENCH_DSN;
export const padding = "x".repeat(load.payload);

/** How many connections a client's pool may have; usual is what the peer is fastest with. */
export const connections = (usual) => load.calls || usual;

/** Import a package from the peer's own environment, wherever this file lies. */
export async function fromEnvironment(name) {
  const require = createRequire(path.join(process.env.BENCH_MODULES, "package.json"));
  return import(pathToFileURL(require.resolve(name)).href);
}

// Nanoseconds since the start of the machine fit into a number for a hundred days.
const now = () => Number(process.hrtime.bigint());

const numbers = [];
const began = [];
const ended = [];

/** Do what a job of the kind asked for does. */
export async function handle(number) {
  began.push(now());
  numbers.push(number);
  if (load.kind === "ms") {
    await sleep(1);
    ended.push([number, now()]);
  }
}

const say = (event, facts = {}) => process.stdout.write(JSON.stringify({ event, ...facts }) + "\n");

function* batches(most) {
  const step = load.chunk || most || load.jobs || 1;
  const end = load.first + load.jobs;
  for (let start = load.first; start < end; start += step) {
    yield Array.from({ length: Math.min(step, end - start) }, (_, place) => start + place);
  }
}

// What a stream sends next: whoever is late sends all that is due in one call.
function due(done, seconds) {
  const late = Math.floor(seconds * load.rate) - done;
  const start = load.first + done;
  return Array.from({ length: Math.min(Math.max(load.chunk, late), load.jobs - done) }, (_, place) => start + place);
}

async function fill(peer, stopped) {
  let done = 0;
  for (const batch of batches(peer.bulk)) {
    if (stopped()) break;
    await peer.enqueue(batch);
    done += batch.length;
  }
  return done;
}

async function stream(peer, stopped) {
  const start = now();
  let done = 0;
  while (done < load.jobs && !stopped()) {
    const batch = due(done, (now() - start) / 1e9);
    await peer.enqueue(batch);
    done += batch.length;
    await sleep(Math.max(0, done / load.rate * 1000 - (now() - start) / 1e6));
  }
  return done;
}

async function enqueue(peer, stopped) {
  const start = now();
  const done = await (load.rate ? stream : fill)(peer, stopped);
  say("enqueued", { jobs: done, seconds: (now() - start) / 1e9 });
}

async function insert(peers, stopped) {
  const callers = peers.flatMap((peer) => Array(load.calls || 1).fill(peer));
  const committed = [];
  let next = load.first;
  async function one(peer) {
    const number = next++;
    await peer.insert(number);
    committed.push([number, now()]);
  }
  async function call(peer) {
    while (next < load.first + load.jobs && !stopped()) {
      await one(peer);
      if (load.gap_to) await sleep(1000 * (load.gap_from + Math.random() * (load.gap_to - load.gap_from)));
    }
  }
  // Connections are opened and statements made ready by one job of each, before the clock begins.
  if (load.calls) await Promise.all(callers.map(one));
  const first = committed.length;
  const start = now();
  await Promise.all(callers.map(call));
  const seconds = (now() - start) / 1e9;
  say("inserted", { jobs: committed.length - first, seconds, committed: load.latency ? committed : [] });
}

async function work(peer, stopped, stop) {
  let toldOf = -1;
  const reporting = setInterval(() => {
    if (numbers.length !== toldOf) say("progress", { executed: (toldOf = numbers.length) });
  }, PROGRESS_EVERY);
  await peer.work(stop);
  clearInterval(reporting);
  const times = load.latency ? { began, ended } : { began: [], ended: [] };
  const [first, last] = [began[0] ?? 0, began.at(-1) ?? 0];
  say("worked", { numbers, first, last, ...times });
}

/** Run one verb of an adapter as the command line asks. */
export async function main(peer) {
  const verb = process.argv[2];
  if (verb === "setup") {
    await peer.setup();
    say("done");
  } else {
    const words = createInterface({ input: process.stdin });
    let isStopped = false;
    const heard = (word) => new Promise((resolve) => {
      words.on("line", (line) => line.trim() === word && resolve());
      words.on("close", resolve);
    });
    const [go, stop] = [heard("go"), heard("stop").then(() => { isStopped = true; })];
    // Only those who enqueue one by one are several: clients that share nothing but their process.
    const count = verb === "insert" ? load.clients : 1;
    const peers = Array.from({ length: count }, () => Object.create(peer));
    for (const one of peers) await one.open();
    say("ready", { unfinished: peer.unfinished, clones: peer.clones ?? [] });
    await go;
    if (verb === "insert") await insert(peers, () => isStopped);
    else await { enqueue, work }[verb](peers[0], () => isStopped, stop);
    for (const one of peers) await one.close();
  }
  // Everything said has to be out before what the peer left running is cut off.
  if (process.stdout.writableLength) await once(process.stdout, "drain");
  process.exit(0);
}
