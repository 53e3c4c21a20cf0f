// graphile-worker: 24 jobs at once, 200 where handlers wait, out of a local queue of 2,000, completions batched without delay.
import { connections, dsn, fromEnvironment, handle, load, main, padding } from "./protocol.mjs";

const { Logger, makeWorkerUtils, run, runMigrations } = await fromEnvironment("graphile-worker");
const { default: pg } = await fromEnvironment("pg");

const silent = new Logger(() => () => {});

const peer = {
  unfinished: "select exists (select from graphile_worker._private_jobs)",
  bulk: 10_000,

  async setup() {
    await runMigrations({ connectionString: dsn, logger: silent });
  },

  async open() {
    this.pool = new pg.Pool({ connectionString: dsn, max: connections(25) });
    this.utils = await makeWorkerUtils({ pgPool: this.pool, logger: silent });
    this.pad = padding;
  },

  async close() {
    await this.utils.release();
  },

  job(number) {
    const due = load.delay ? { runAt: new Date(Date.now() + load.delay * 1000) } : {};
    const priority = number % load.priorities;
    return { identifier: "job", payload: { number, pad: this.pad }, priority, ...due };
  },

  async enqueue(numbers) {
    await this.utils.addJobs(numbers.map((number) => this.job(number)));
  },

  async insert(number) {
    await this.utils.addJob("job", { number, pad: this.pad });
  },

  async work(stop) {
    const runner = await run({
      pgPool: this.pool,
      logger: silent,
      noHandleSignals: true,
      crontab: "",
      taskList: { job: ({ number }) => handle(number) },
      preset: {
        worker: {
          concurrentJobs: load.slots || (load.kind === "ms" ? 200 : 24),
          localQueue: { size: 2000 },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
        },
      },
    });
    await stop;
    await runner.stop();
  },
};

await main(peer);
