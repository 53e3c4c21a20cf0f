// pg-boss: two workers with batches of 1,000; its handler is called once for a whole batch.
import { connections, dsn, fromEnvironment, handle, load, main, padding } from "./protocol.mjs";

const { PgBoss } = await fromEnvironment("pg-boss");

const queues = ["job", ...Array.from({ length: load.queues - 1 }, (_, n) => `empty_${n + 1}`)];

const peer = {
  unfinished: "select exists (select from pgboss.job where state < 'completed')",
  clones: [["pgboss.job", "id", "gen_random_uuid()"]],
  bulk: 10_000,

  boss() {
    // A client that only sends looks after nothing.
    const lean = load.calls ? { supervise: false, schedule: false, migrate: false } : { useListenNotify: true };
    const boss = new PgBoss({ connectionString: dsn, max: connections(10), ...lean });
    boss.on("error", (error) => console.error(error.message));
    return boss;
  },

  async setup() {
    const boss = this.boss();
    await boss.start();
    for (const name of queues) await boss.createQueue(name, { notify: true });
    await boss.stop({ graceful: false });
  },

  async open() {
    this.running = await this.boss().start();
    this.pad = padding;
  },

  async close() {
    await this.running.stop({ graceful: false });
  },

  async enqueue(numbers) {
    const due = load.delay ? { startAfter: load.delay } : {};
    const jobs = numbers.map((number) => (
      { data: { number, pad: this.pad }, priority: number % load.priorities, ...due }
    ));
    await this.running.insert("job", jobs);
  },

  async insert(number) {
    await this.running.send("job", { number, pad: this.pad });
  },

  async work(stop) {
    const options = { batchSize: load.slots || 1000, localConcurrency: 2, burstWhenBatchFull: true };
    for (const name of queues) {
      await this.running.work(name, options, async (jobs) => {
        await Promise.all(jobs.map(({ data }) => handle(data.number)));
      });
    }
    await stop;
    for (const name of queues) await this.running.offWork(name);
  },
};

await main(peer);
