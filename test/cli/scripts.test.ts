/** What the scripts of the repository say and return where something is missing or fails. */
import { spawnSync } from 'node:child_process';
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'kvant-scripts-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const lastLine = (text: string) => text.trimEnd().split('\n').at(-1);

/** Runs `.ci/run` with an npm that answers by `answers`, the lines of a shell `case` on its arguments. */
function ci(answers: string) {
  mkdirSync(join(folder, '.ci'));
  copyFileSync('.ci/run', join(folder, '.ci/run'));
  mkdirSync(join(folder, 'bin'));
  writeFileSync(
    join(folder, 'bin/npm'),
    `#!/bin/sh\necho "npm $*" >> calls\ncase "$*" in\n${answers}\nesac\n`,
    { mode: 0o755 },
  );
  const { status, stdout } = spawnSync('bash', [join(folder, '.ci/run')], {
    encoding: 'utf8',
    env: { ...process.env, PATH: `${join(folder, 'bin')}${delimiter}${process.env.PATH}` },
  });
  return { status, stdout, last: lastLine(stdout) };
}

it.each<[string, string, number, string]>([
  ['everything passes', 'test) echo "7 passed, 0 failed";;', 0, '12 passed, 0 failed'],
  ['a test fails', 'test) echo "6 passed, 1 failed"; exit 1;;', 1, '11 passed, 1 failed'],
  ['lint fails', '"run -s lint") exit 1;;\ntest) echo "7 passed, 0 failed";;', 1, '11 passed, 1 failed'],
  ['the tests die without a word', 'test) exit 137;;', 1, '5 passed, 1 failed'],
  [
    'the tests say all is well and fail',
    'test) echo "7 passed, 0 failed"; exit 1;;',
    1,
    '12 passed, 1 failed',
  ],
])('.ci/run when %s', (_, answers, status, last) => {
  expect(ci(answers)).toMatchObject({ status, last });
});

it('.ci/run ends where nothing could be installed', () => {
  const { status, last, stdout } = ci('ci*) exit 1;;\ntest) echo "7 passed, 0 failed";;');
  expect({ status, last }).toEqual({ status: 1, last: '0 passed, 1 failed' });
  expect(stdout).not.toContain('== lint');
});

it('the test command refuses a suite that does not exist, and counts that as a failure', () => {
  const { status, stdout, stderr } = spawnSync(process.execPath, ['scripts/test.mjs', 'nope'], {
    encoding: 'utf8',
  });
  expect({ status, last: lastLine(stdout) }).toEqual({ status: 2, last: '0 passed, 1 failed' });
  expect(stderr).toContain('unit, soak');
});

/** Runs the test command in a project of its own, whose suite `unit` is one file, and so is `package` where it has a body. */
function suite(body: string, besides?: string) {
  for (const name of ['scripts', 'src', 'dist']) mkdirSync(join(folder, name));
  for (const name of ['test', 'run-suite', 'test-progress'])
    copyFileSync(`scripts/${name}.mjs`, join(folder, `scripts/${name}.mjs`));
  symlinkSync(resolve('node_modules'), join(folder, 'node_modules'));
  writeFileSync(
    join(folder, 'src/a.test.mjs'),
    `import { existsSync, readFileSync, writeFileSync } from 'node:fs';\nimport { expect, it } from 'vitest';\n${body}\n`,
  );
  const names = besides === undefined ? ['unit'] : ['unit', 'package'];
  if (besides !== undefined) {
    mkdirSync(join(folder, 'test/package'), { recursive: true });
    writeFileSync(
      join(folder, 'test/package/b.test.mjs'),
      `import { existsSync, writeFileSync } from 'node:fs';\nimport { expect, it } from 'vitest';\n${besides}\n`,
    );
  }
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [join(folder, 'scripts/test.mjs'), ...names],
    {
      encoding: 'utf8',
      // Not those of the run that this test is part of.
      env: Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('VITEST'))),
    },
  );
  return { status, last: lastLine(stdout), stdout, stderr };
}

it('what tests share registers no hook as it is loaded: where a process runs many files it would act in the first alone', () => {
  const folders = ['engine', 'server', 'parity', 'embeddings', 'devices', 'setup'].map(
    (name) => `test/${name}`,
  );
  const helpers = folders.flatMap((folder) =>
    readdirSync(folder)
      .filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts'))
      .map((name) => `${folder}/${name}`),
  );
  const hooked = helpers.filter((path) => /^(before|after)(Each|All)\(/m.test(readFileSync(path, 'utf8')));
  // Used where each file has a process of its own.
  expect(hooked).toEqual(['test/devices/open-cpu.ts', 'test/setup/shared-gpu.ts']);
});

const GOOD = "it('adds', () => expect(1 + 1).toBe(2));";
/** Waits until what passed before is told, however busy the machine is; SwiftShader aborts in the same way. */
const DIES = `
  const told = () => readFileSync(process.env.KVANT_TEST_PROGRESS, 'utf8').split('\\n');
  const both = () => told().some((line) => line.includes('"passed"')) && told().filter((line) => line.includes('"ready"')).length > 1;
  while (!both()) {
    // Vitest may keep back what it was told last until it is told something else.
    await annotate('waits');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  process.abort();`;

it('the test command runs a file again whose process died in the middle of a test', () => {
  const once = `it('works', async ({ annotate }) => { if (existsSync('died')) return; writeFileSync('died', ''); ${DIES} }, 60_000);`;
  const { status, last, stderr } = suite(`${GOOD}\n${once}`);
  expect({ status, last }).toEqual({ status: 0, last: '2 passed, 0 failed' });
  expect(stderr).toContain('a test process died. These run again: src/a.test.mjs');
});

it('the test command names the files that took longest, before the suites', () => {
  const { stdout } = suite("it('waits', () => new Promise((resolve) => setTimeout(resolve, 300)));");
  const [, slowest, suites] = /The files that took longest:([\s\S]*?)└[^\n]*([\s\S]*)/.exec(stdout)!;
  const [, seconds] = /'unit' *│ *'src\/a\.test\.mjs' *│ *([\d.]+)/.exec(slowest!)!;
  expect(Number(seconds)).toBeGreaterThan(0);
  expect(suites).toContain("'unit'");
});

it('the test command runs two suites side by side, and counts both', () => {
  /** Each waits for the other. */
  const meets = (own: string, other: string) =>
    `it('meets', async () => { writeFileSync('${own}', ''); while (!existsSync('${other}')) await new Promise((resolve) => setTimeout(resolve, 20)); }, 60_000);`;
  const failing = "it('no', () => expect(1).toBe(2));";
  const { status, stdout } = suite(meets('a', 'b'), `${meets('b', 'a')}\n${failing}`);
  expect(status).toBe(1);
  expect(stdout).toMatch(/'package' *│ *1 *│ *1 *│/);
  expect(stdout).toMatch(/'unit' *│ *1 *│ *0 *│/);
  expect(stdout.trimEnd()).toMatch(
    /\npackage: test\/package\/b\.test\.mjs: "no" failed\n2 passed, 1 failed$/,
  );
});

it('the test command fails where the process dies again', () => {
  const { status, last, stdout } = suite(`${GOOD}\nit('dies', async ({ annotate }) => { ${DIES} }, 60_000);`);
  expect({ status, last }).toEqual({ status: 1, last: '1 passed, 1 failed' });
  expect(stdout).toContain('unit: src/a.test.mjs: "dies" did not run to its end in 3 attempts\n1 passed');
});

it.each([
  ['a test that fails', "it('no', () => expect(1).toBe(2));", '"no" failed'],
  ['a test that is skipped', "it.skip('later', () => {});", '"later" was skipped'],
  ['a file that throws', "throw new Error('no');", 'could not be run'],
])('the test command names %s at its end, and runs nothing twice', (_, body, name) => {
  const { status, last, stdout, stderr } = suite(`${GOOD}\n${body}`);
  const passed = name === 'could not be run' ? 0 : 1;
  expect({ status, last }).toEqual({ status: 1, last: `${passed} passed, 1 failed` });
  expect(stdout.trimEnd().split('\n').at(-2)).toContain(name);
  expect(stderr).not.toContain('run again');
});
