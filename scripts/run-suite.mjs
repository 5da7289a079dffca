// Runs the test files of one suite, and those that a dead or hung process left a second time.
import { spawn } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { join, relative } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
/** No test may take so long without a word: a process that does hangs in native code, where no timeout of a test acts. */
const SILENCE_MS = 480_000;
/** SwiftShader aborts or hangs now and then, mostly when a device is lost with work under way. */
const ATTEMPTS = 3;

/** Groups of processes under way: a signal ends them all. */
const groups = new Set();
for (const [signal, code] of [
  ['SIGINT', 130],
  ['SIGTERM', 143],
])
  process.once(signal, () => {
    for (const end of groups) end();
    process.exit(code);
  });

/**
 * `suite`: `{ paths, exclude?, env?, workers, shared?, byLines? }`; `shared`: files have a process in common;
 * `byLines`: it writes whole lines, for another suite runs beside it. `progress`: the path of a scratch file. `onStart` is called when the first tests are about to run. Resolves
 * with `{ passed, complaints, files }`: a line for each test that did not pass, and the seconds of each file.
 */
export async function runSuite(name, suite, progress, onStart = () => {}) {
  const total = { passed: 0, complaints: [], files: [] };
  let paths = suite.paths;
  for (let attempt = 1; ; attempt++) {
    // A process that dies takes those with it that share it: from then on each file has its own.
    const shared = suite.shared === true && attempt === 1;
    const run = await runFiles(paths, { ...suite, shared }, progress, onStart);
    for (const file of run.ended) {
      total.passed += file.tests.filter((test) => test.state === 'passed').length;
      total.complaints.push(...complaintsOf(file));
      total.files.push({ file: relative(root, file.file), seconds: file.seconds });
    }
    if (run.left.length === 0) {
      total.complaints.push(...run.unhandled.map((message) => `unhandled error: ${message}`));
      if (total.passed === 0 && total.complaints.length === 0) total.complaints.push('no test ran');
      else if (total.complaints.length === 0 && run.status !== 0 && !run.hung)
        total.complaints.push(`no test failed, but the run ended with ${run.status}`);
      return total;
    }
    const left = run.left.map((file) => relative(root, file));
    if (attempt === ATTEMPTS) {
      for (const path of left) {
        const seen = run.cases.filter(({ file }) => relative(root, file) === path);
        total.passed += seen.filter((one) => one.state === 'passed').length;
        const done = new Set(seen.filter((one) => one.event === 'case').map(({ name }) => name));
        const open = seen.filter(({ event, name }) => event === 'ready' && !done.has(name));
        for (const what of open.length > 0 ? open.map(({ name }) => `${path}: "${name}"`) : [path])
          total.complaints.push(`${what} did not run to its end in ${ATTEMPTS} attempts`);
      }
      return total;
    }
    console.error(
      `\n${name}: a test process ${run.hung ? 'hung' : 'died'}. These run again: ${left.join(', ')}\n`,
    );
    paths = run.left;
  }
}

/** `left`: files that did not run to their end, when a process died or hung; `cases`: when tests began and ended. */
async function runFiles(paths, suite, progress, onStart) {
  rmSync(progress, { force: true });
  const child = spawn(
    process.execPath,
    [
      '--expose-gc',
      join(root, 'node_modules/vitest/vitest.mjs'),
      'run',
      ...paths,
      ...(suite.exclude ?? []).map((path) => `--exclude=${path}`),
      `--maxWorkers=${suite.workers}`,
      ...(suite.shared ? ['--no-isolate'] : []),
      '--reporter=default',
      `--reporter=${join(root, 'scripts/test-progress.mjs')}`,
    ],
    // A group of its own: a hung worker is ended with its parent.
    {
      cwd: root,
      stdio: suite.byLines ? ['ignore', 'pipe', 'pipe'] : 'inherit',
      env: {
        ...process.env,
        ...suite.env,
        ...(suite.shared ? { KVANT_TEST_SHARED: '1' } : {}),
        KVANT_TEST_PROGRESS: progress,
      },
      detached: true,
    },
  );
  const endGroup = () => {
    try {
      process.kill(-child.pid, 'SIGKILL');
    } catch {
      // It has ended.
    }
  };
  groups.add(endGroup);
  const written = suite.byLines
    ? [passLines(child.stdout, process.stdout), passLines(child.stderr, process.stderr)]
    : [];
  const started = Date.now();
  let hung = false;
  const watch = setInterval(() => {
    const events = readEvents(progress);
    if (events.length > 0) onStart();
    if (silence(events, started) < SILENCE_MS) return;
    hung = true;
    endGroup();
  }, 5_000);
  const status = await new Promise((resolve) => {
    child.once('exit', (code, signal) => resolve(code ?? signal));
  });
  clearInterval(watch);
  endGroup();
  groups.delete(endGroup);
  await Promise.all(written);

  const events = readEvents(progress);
  const ended = events.filter(
    (one) => one.event === 'end' && one.tests.every((test) => test.state !== 'pending'),
  );
  const cases = events.filter((one) => one.event === 'ready' || one.event === 'case');
  const whole = new Set(ended.map((one) => one.file));
  const all = events.find((one) => one.event === 'run')?.files ?? [];
  const unhandled = events.find((one) => one.event === 'done')?.unhandled ?? [];
  return { status, hung, ended, cases, left: all.filter((file) => !whole.has(file)), unhandled };
}

/** Resolves when all has been read, which is when no process of the group is left. */
async function passLines(from, to) {
  for await (const line of createInterface({ input: from })) to.write(`${line}\n`);
}

/** The longest time that a file under way has said nothing, or the whole run where none is under way, in ms. */
function silence(events, started) {
  const last = new Map();
  for (const one of events) {
    if (one.event === 'end') last.delete(one.file);
    else if (one.file !== undefined) last.set(one.file, one.at);
  }
  const since = last.size > 0 ? Math.min(...last.values()) : (events.at(-1)?.at ?? started);
  return Date.now() - since;
}

/** A run that died leaves half a line at most. */
function readEvents(path) {
  let text;
  try {
    text = readFileSync(path, 'utf8');
  } catch {
    return [];
  }
  return text.split('\n').flatMap((line) => {
    try {
      return line === '' ? [] : [JSON.parse(line)];
    } catch {
      return [];
    }
  });
}

/** In this project a test that is skipped is a failure. */
const ENDS = { failed: 'failed', skipped: 'was skipped' };

/** One line for each test that did not pass, a skipped one among them, and for a file that did not load. */
function complaintsOf({ file, tests, errors }) {
  const path = relative(root, file);
  return [
    ...tests
      .filter((test) => test.state !== 'passed')
      .map((test) => `${path}: "${test.name}" ${ENDS[test.state] ?? test.state}`),
    ...errors.map((message) => `${path} could not be run: ${message}`),
    ...(tests.length === 0 && errors.length === 0 ? [`${path} has no test`] : []),
  ];
}
