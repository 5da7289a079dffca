/** Preloaded in each thread of a process: what of it is in use, as a JSON line in `THREAD_MEMORY` whenever the file beside it asks. */
const { appendFileSync, readFileSync } = require('node:fs');
const { setFlagsFromString } = require('node:v8');
const { runInNewContext } = require('node:vm');
const { threadId } = require('node:worker_threads');

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc');
const log = process.env.THREAD_MEMORY;

let told = 0;
setInterval(() => {
  const asked = Number(readFileSync(`${log}.asked`, 'utf8'));
  if (asked === told) return;
  told = asked;
  collect();
  collect();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  appendFileSync(log, `${JSON.stringify({ asked, thread: threadId, heapUsed, arrayBuffers })}\n`);
}, 100).unref();
